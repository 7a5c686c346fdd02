"""Featurize: its one call releases an instance; no call reports an instance's state or cost.

As of the vendor's client, featurize 0.0.27 on PyPI (verified 2024-03): no list, no state, no price,
no balance; errors have status 200 and a nonzero ``status``. A release keeps only the cloud storage,
and only the console shows whether it was done.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from rgt_tui.language import translate
from rgt_tui.model import CLICK, BillingVerb, Permit, Profile, ProviderRef, steady_time
from rgt_tui.profiles import load_profile
from rgt_tui.providers.answers import Answers, as_object, parse_text
from rgt_tui.providers.console import ConsoleAccount, ConsoleBox
from rgt_tui.providers.control_plane import (
    AccountContext,
    BadAnswer,
    PermitRefused,
    make_printable,
    use_permit,
)
from rgt_tui.providers.http import AccountHttp, BodyError, open_http

VENDOR = "https://featurize.cn"
KEY_ENV = "FEATURIZE_API_TOKEN"
RELEASE = "release"
_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
ANSWERS: Answers = {verb: {} for verb in BillingVerb}
"""Its error codes are undocumented: featurize 0.0.27 on PyPI (verified 2024-03)."""


def open_account(ref: ProviderRef, context: AccountContext) -> FeaturizeAccount:
    """Return the account that an instance belongs to; see `rgt_tui.providers.control_plane.Open`."""
    http = open_http(
        ref,
        context,
        vendor=VENDOR,
        console=VENDOR,
        key_env=KEY_ENV,
        header="Token",
        scheme="",
        wrong=find_body_error,
    )
    return FeaturizeAccount(ref, http, load_profile(ref.kind), context.clock)


def find_body_error(data: object) -> BodyError | None:
    """Return the error of a body like ``{"status": 40001, "message": …}``; 0 means success."""
    if not isinstance(data, dict) or "status" not in data or data["status"] == 0:
        return None
    code = make_printable(data["status"], 40)
    return BodyError(code, parse_text(data.get("message"), 200) or f"status {code}")


class FeaturizeAccount(ConsoleAccount):
    """One account, which can release instances and reports nothing about them."""

    def __init__(
        self, ref: ProviderRef, http: AccountHttp, profile: Profile, clock: Callable[[], float]
    ) -> None:
        super().__init__(ref, profile, clock)
        self.http = http

    def open_control_plane(self, instance: str) -> FeaturizeBox:
        """Return the control plane of one instance."""
        ref = msgspec.structs.replace(self.ref, instance=instance)
        return FeaturizeBox(ref, self.http, self.profile, self.clock)

    async def close(self) -> None:
        """Close the connections."""
        await self.http.close()


class FeaturizeBox(ConsoleBox):
    """One instance."""

    def __init__(
        self, ref: ProviderRef, http: AccountHttp, profile: Profile, clock: Callable[[], float]
    ) -> None:
        super().__init__(ref, profile, clock)
        self._http = http

    def _accepted_actions(self) -> tuple[str, ...]:
        return (CLICK, RELEASE)

    def native_action(self, verb: BillingVerb) -> str:
        """Return the word among ``Meter.actions``."""
        if verb is BillingVerb.DESTROY:
            return RELEASE
        return CLICK

    def describe_call(self, verb: BillingVerb, instance: str) -> str:
        """Return the exact call."""
        if verb is not BillingVerb.DESTROY:
            return super().describe_call(verb, instance)
        return f"POST {self._http.base_url}{make_printable(_release_path(instance))}"

    async def destroy(self, permit: Permit) -> str:
        """Release the instance; see `Provider.destroy`. Only the console confirms it."""
        use_permit(permit, BillingVerb.DESTROY, self.ref, steady_time())
        if not _ID.fullmatch(self.instance):
            raise PermitRefused(
                translate(
                    "{instance!r} is not a Featurize id; correct the instance in the fleet file",
                    instance=make_printable(self.instance, 80),
                )
            )
        answer = await self._http.send("POST", _release_path(self.instance))
        if as_object(answer.data).get("status") != 0:
            raise BadAnswer(
                translate("Featurize did not confirm the request"),
                console=self._http.console,
                status=answer.status,
            )
        return translate(
            "{host} answered status 0, and no API call shows whether the instance still exists",
            host=self._http.host,
        )


def _release_path(instance: str) -> str:
    return f"/bus/api/v1/virtual_machine/{instance}/release"
