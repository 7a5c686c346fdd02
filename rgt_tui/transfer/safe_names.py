"""Which classes and functions a checkpoint's pickle may name: tensors, storages, plain values.

`TORCH` is what ``torch.load(weights_only=True)`` accepts by default
(torch/_weights_only_unpickler.py, ``_get_allowed_globals``, read in torch 2.13). The other tables
are what trainers store next to the tensors: plain values of NumPy and the standard library, and
framework records whose construction only stores its arguments. rgt constructs none of them: an
allowed name is merely not evidence of an attack.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

ATTRIBUTE = ("builtins", "getattr")
"""How Python 3.11.0 to 3.11.3 pickles an enum member; allowed for enums only."""

_WIDTHS = {
    "Float": 4, "Double": 8, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2, "Char": 1,
    "Byte": 1, "Bool": 1,
    "ComplexFloat": 8, "ComplexDouble": 16, "QInt8": 1, "QUInt8": 1, "QInt32": 4, "QUInt4x2": 1,
    "QUInt2x4": 1,
}  # fmt: skip
"""Bytes per element, by the name of the storage."""

STORAGES: Mapping[tuple[str, str], int] = {
    **{
        (module, f"{kind}Storage"): width
        for kind, width in _WIDTHS.items()
        for module in ("torch", "torch.cuda")
    },
    ("torch.storage", "UntypedStorage"): 1,
}
"""Class of a storage → bytes per element."""

DTYPES: Mapping[str, int] = {
    **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 8),
    **dict.fromkeys(("float32", "int32", "uint32", "complex32", "qint32"), 4),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16", "bits16"), 2),
    **dict.fromkeys(
        (
            "int8", "uint8", "bool", "qint8", "quint8", "quint4x2", "quint2x4", "bits8", "bits1x8",
            "bits2x4",
            "bits4x2", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
            "float8_e8m0fnu", "float4_e2m1fn_x2",
            *(f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 8)),
        ),
        1,
    ),
    "complex128": 16,
}  # fmt: skip
"""Name of a torch dtype → bytes per element."""


def _name_pairs(names: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset(
        (module, name) for module, all_names in names.items() for name in all_names.split()
    )


TORCH: frozenset[tuple[str, str]] = (
    _name_pairs(
        {
            "collections": "OrderedDict Counter",
            "torch.nn.parameter": "Parameter",
            "torch.serialization": "_get_layout",
            "torch": "Size Tensor device per_tensor_affine per_tensor_symmetric per_channel_affine "
            "per_channel_symmetric per_channel_affine_float_qparams",
            "_codecs": "encode",
            "builtins": "bytearray set complex",
            "torch.storage": "TypedStorage UntypedStorage",
            "torch._utils": "_rebuild_parameter _rebuild_parameter_with_state _rebuild_qtensor "
            "_rebuild_tensor _rebuild_tensor_v2 _rebuild_tensor_v3 "
            "_rebuild_sparse_tensor _rebuild_meta_tensor_no_storage "
            "_rebuild_nested_tensor _rebuild_wrapper_subclass "
            "_rebuild_device_tensor_from_numpy "
            "_rebuild_device_tensor_from_cpu_tensor",
            "torch._tensor": "_rebuild_from_type_v2",
        }
    )
    | {("torch", name) for name in DTYPES}
    | {(module, name) for module, name in STORAGES if module in ("torch", "torch.cuda")}
)

_VALUES = _name_pairs(
    {
        "builtins": "frozenset dict list tuple int float str bytes bool object slice range getattr",
        "copyreg": "_reconstructor",
        "collections": "defaultdict deque",
        "argparse": "Namespace",
        "datetime": "date datetime time timedelta timezone",
        "decimal": "Decimal",
        "fractions": "Fraction",
        "types": "SimpleNamespace",
        "uuid": "UUID SafeUUID",
        "typing": "Any",
        **dict.fromkeys(("pathlib", "pathlib._local"),
                        "PosixPath PurePosixPath WindowsPath PureWindowsPath"),
        **dict.fromkeys(("numpy.core.multiarray", "numpy._core.multiarray"), "_reconstruct scalar"),
        **dict.fromkeys(("numpy.core.numeric", "numpy._core.numeric"), "_frombuffer"),
        "numpy": ("ndarray dtype bool_ float64 float32 float16 int64 int32 int16 int8 uint64 "
                  "uint32 uint16 uint8"),
        "numpy.dtypes": " ".join(
            f"{name}DType"
            for name in (
                "Bool", "Int8", "UInt8", "Int16", "UInt16", "Int32", "UInt32", "Int64", "UInt64",
                "LongLong",
                "ULongLong", "Float16", "Float32", "Float64", "LongDouble", "Complex64",
                "Complex128",
                "Str", "Bytes", "DateTime64", "TimeDelta64",
            )
        ),
    }
)  # fmt: skip
"""Names of the standard library and NumPy."""

_RECORDS = _name_pairs(
    {
        "torch.distributed.tensor": "DTensor",
        "torch.distributed._tensor": "DTensor",
        "torch.distributed._tensor.api": "DTensor",
        "torch.distributed.device_mesh": "DeviceMesh _MeshLayout",
        "torch.distributed.tensor._dtensor_spec": "DTensorSpec TensorMeta ShardOrderEntry",
        "torch.distributed.tensor.placement_types": "Partial Replicate Shard",
        "torch.distributed._tensor.placement_types": (
            "DTensorSpec TensorMeta Partial Replicate Shard"
        ),
        "pytorch_lightning.utilities.parsing": "AttributeDict",
        "lightning.pytorch.utilities.parsing": "AttributeDict",
        "lightning_fabric.utilities.data": "AttributeDict",
        "lightning.fabric.utilities.data": "AttributeDict",
        "omegaconf.dictconfig": "DictConfig",
        "omegaconf.listconfig": "ListConfig",
        "omegaconf.base": "ContainerMetadata Metadata",
        "omegaconf.nodes": "AnyNode StringNode IntegerNode FloatNode BooleanNode",
        "deepspeed.runtime.fp16.loss_scaler": "LossScaler DynamicLossScaler",
        "deepspeed.runtime.zero.config": "ZeroStageEnum",
        "deepspeed.utils.tensor_fragment": "fragment_address",
        "transformers.training_args": "TrainingArguments OptimizerNames ParallelMode",
        "transformers.training_args_seq2seq": "Seq2SeqTrainingArguments",
        "transformers.trainer_utils": "IntervalStrategy HubStrategy SchedulerType SaveStrategy "
                                      "EvaluationStrategy FSDPOption",
        "transformers.debug_utils": "DebugOption",
        "transformers.trainer_pt_utils": "AcceleratorConfig",
        "transformers.integrations.deepspeed": "HfDeepSpeedConfig HfTrainerDeepSpeedConfig",
        "accelerate.utils.dataclasses": "DistributedType DeepSpeedPlugin "
                                        "FullyShardedDataParallelPlugin GradientAccumulationPlugin "
                                        "DynamoBackend",
        "accelerate.state": "PartialState",
        "trl.trainer.sft_config": "SFTConfig",
        "trl.trainer.dpo_config": "DPOConfig",
        "trl.trainer.grpo_config": "GRPOConfig",
        "trl.trainer.reward_config": "RewardConfig",
    }
)  # fmt: skip
"""Names of trainers and frameworks: settings, enums and placements whose construction has no side
effects.
"""

CHECKPOINT: frozenset[tuple[str, str]] = TORCH | _VALUES | _RECORDS
"""Names allowed in a torch file."""

_ACTS = frozenset(
    (
        "_io", "_pickle", "_posixsubprocess", "_socket", "bdb", "code", "codeop", "commands",
        "ctypes", "ensurepip",
        "ftplib", "httplib", "importlib", "io", "marshal", "nt", "os", "pdb", "pickle", "pip",
        "popen2", "posix", "pty",
        "runpy", "shutil", "smtplib", "socket", "subprocess", "sys", "telnetlib", "timeit",
        "urllib", "urllib2",
        "webbrowser",
    )
)  # fmt: skip
"""Modules whose functions run programs or code, or read and write outside of the pickle."""
_CLASSES_THAT_ACT = frozenset(("CDLL", "FileIO", "PyDLL", "Popen"))
_BUILTINS_THAT_ACT = frozenset(
    ("__import__", "apply", "breakpoint", "compile", "eval", "exec", "execfile", "input", "open")
)


def has_side_effects(module: str, name: str) -> bool:
    """Return whether calling a name has side effects, like ``posix.system``, which no object needs.

    False is no proof of safety: not all modules are known.
    """
    if module == "builtins":
        return name in _BUILTINS_THAT_ACT
    *way, last = name.split(".")
    if module.partition(".")[0] not in _ACTS and _ACTS.isdisjoint(way):
        return False
    is_class = last[:1].isupper() or last.endswith(("_info", "_result"))
    return not is_class or last in _CLASSES_THAT_ACT


_OWN = "torch.distributed.checkpoint.metadata"
_SHARD = "torch.distributed._shard.sharded_tensor.metadata"
SHARDED_METADATA: frozenset[tuple[str, str]] = (
    _name_pairs(
        {
            _OWN: "Metadata TensorStorageMetadata BytesStorageMetadata ChunkStorageMetadata "
            "TensorProperties MetadataIndex StorageMeta _MEM_FORMAT_ENCODING",
            _SHARD: "TensorProperties MEM_FORMAT_ENCODING",
            "torch.distributed.checkpoint.filesystem": "_StorageInfo",
            "torch.serialization": "_get_layout",
            "torch": "Size",
            "collections": "OrderedDict",
        }
    )
    | {("torch", name) for name in DTYPES}
    | {ATTRIBUTE}
    | {name for name in _VALUES if name[0].startswith("pathlib")}
)
"""Names allowed in the ``.metadata`` file of torch.distributed.checkpoint."""

OWNERS_OF_ATTRIBUTES: frozenset[tuple[str, str]] = _name_pairs(
    {
        _OWN: "_MEM_FORMAT_ENCODING",
        _SHARD: "MEM_FORMAT_ENCODING",
        "transformers.training_args": "OptimizerNames ParallelMode",
        "transformers.trainer_utils": "IntervalStrategy HubStrategy SchedulerType SaveStrategy "
        "EvaluationStrategy FSDPOption",
        "transformers.debug_utils": "DebugOption",
        "accelerate.utils.dataclasses": "DistributedType DynamoBackend",
        "deepspeed.runtime.zero.config": "ZeroStageEnum",
        "uuid": "SafeUUID",
    }
)
"""Enums whose members `ATTRIBUTE` may access."""


def beyond_torch(names: Iterable[tuple[str, str]]) -> list[str]:
    """Return the names that ``weights_only`` loading does not accept by default."""
    return sorted(".".join(name) for name in names if tuple(name) not in TORCH)
