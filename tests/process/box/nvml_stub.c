/* A stand-in for libnvidia-ml.so.1: GPU 0 is busy, GPU 1 has fallen off the bus. What a test may set:
 *   STUB_INIT    what nvmlInit returns
 *   STUB_COUNT   number of GPUs (2)
 *   STUB_LOST    a path: only while it exists, GPU 1 is lost
 *   STUB_HANG    a path: while it exists, asking for the use of a GPU does not come back
 *   STUB_USERS   "PID:BYTES,..." on GPU 0; BYTES of 0 are unknown
 *   STUB_ECC     uncorrected memory errors of GPU 0
 *   STUB_OLD     any value: a driver that has only the older call for the list of processes
 *   STUB_LINKS   NVLinks of a card (0: it has none), of which the first STUB_UP are active
 *   STUB_MIG     number of parts that GPU 0 is cut into; its second place is empty, as after a part was destroyed;
 *                -1: it is to be cut, and none was made
 *   STUB_FORBID  any value: the calls for NVLinks and parts are refused, as in some containers
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NO_SUCH = 6, INSUFFICIENT = 7, NOT_FOUND = 13, LOST = 15, MISMATCH = 18, MOST = 16 };
typedef struct { int index; } *device;
typedef struct { unsigned pid; unsigned long long bytes; unsigned instance, compute; } user;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char address[32]; } pci;
static struct { int index; } devices[8] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
static struct { int index; } parts[8] = {{100}, {101}, {102}, {103}, {104}, {105}, {106}, {107}};

static int number(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}
static int exists(const char *name) { return getenv(name) && !access(getenv(name), F_OK); }
static int lost(device d) { return d->index == 1 && (!getenv("STUB_LOST") || exists("STUB_LOST")); }

int nvmlInitWithFlags(unsigned flags) { return number("STUB_INIT", OK); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) {
    return code == LOST ? "GPU is lost" : code == MISMATCH ? "Driver/library version mismatch" : "Not Supported";
}
int nvmlDeviceGetCount_v2(unsigned *count) { *count = number("STUB_COUNT", 2); return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *handle) {
    *handle = (device)&devices[index % 8];
    return index >= (unsigned)number("STUB_COUNT", 2) ? INVALID : lost(*handle) ? LOST : OK;
}
int nvmlDeviceGetName(device d, char *name, unsigned length) {
    strncpy(name, d->index >= 100 ? "NVIDIA Stub 80GB MIG 1g.10gb" : "NVIDIA Stub 80GB", length);
    return OK;
}
int nvmlDeviceGetUUID(device d, char *uuid, unsigned length) {
    snprintf(uuid, length, "%s-5afe0000-0000-4000-8000-%012x", d->index >= 100 ? "MIG" : "GPU", d->index);
    return OK;
}
int nvmlDeviceGetMinorNumber(device d, unsigned *minor) { *minor = d->index; return OK; }
int nvmlDeviceGetPciInfo_v3(device d, pci *info) {
    memset(info, 0, sizeof *info);
    snprintf(info->address, sizeof info->address, "00000000:%02X:00.0", 0x3b + d->index);
    return OK;
}
int nvmlDeviceGetMaxClockInfo(device d, unsigned kind, unsigned *mhz) { *mhz = 1980; return OK; }
int nvmlDeviceGetClockInfo(device d, unsigned kind, unsigned *mhz) { *mhz = 1755; return OK; }
int nvmlDeviceGetUtilizationRates(device d, unsigned *rates) {
    while (exists("STUB_HANG")) usleep(1000);
    rates[0] = 93; rates[1] = 40;
    return OK;
}
int nvmlDeviceGetMemoryInfo(device d, unsigned long long *memory) {
    if (d->index >= 100) {
        memory[0] = 10ULL << 30; memory[1] = 7ULL << 30; memory[2] = 3ULL << 30;
        return OK;
    }
    memory[0] = 80ULL << 30; memory[1] = 20ULL << 30; memory[2] = 60ULL << 30;
    return OK;
}
int nvmlDeviceGetTemperature(device d, unsigned sensor, unsigned *celsius) { *celsius = 66; return OK; }
int nvmlDeviceGetTemperatureThreshold(device d, unsigned kind, unsigned *celsius) {
    *celsius = 90;
    return kind == 1 ? OK : INVALID;
}
int nvmlDeviceGetNvLinkState(device d, unsigned link, unsigned *active) {
    *active = link < (unsigned)number("STUB_UP", 0);
    if (getenv("STUB_FORBID")) return NO_PERMISSION;
    return !number("STUB_LINKS", 0) ? NOT_SUPPORTED : link < (unsigned)number("STUB_LINKS", 0) ? OK : INVALID;
}
int nvmlDeviceGetMigMode(device d, unsigned *now, unsigned *later) {
    *now = *later = d->index == 0 && number("STUB_MIG", 0) != 0;
    return getenv("STUB_FORBID") ? NO_PERMISSION : getenv("STUB_MIG") ? OK : NOT_SUPPORTED;
}
int nvmlDeviceGetMaxMigDeviceCount(device d, unsigned *count) { *count = 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(device d, unsigned place, device *part) {
    unsigned after = place > 1 ? place - 1 : place;
    *part = (device)&parts[place];
    return place == 1 || (int)after >= number("STUB_MIG", 0) ? NO_SUCH : OK;
}
int nvmlDeviceGetPowerUsage(device d, unsigned *milliwatts) { *milliwatts = 512345; return OK; }
int nvmlDeviceGetEnforcedPowerLimit(device d, unsigned *milliwatts) { return NOT_SUPPORTED; }
int nvmlDeviceGetCurrentClocksThrottleReasons(device d, unsigned long long *mask) { *mask = 0x4 | 0x40; return OK; }
int nvmlDeviceGetMaxPcieLinkGeneration(device d, unsigned *value) { *value = 5; return OK; }
int nvmlDeviceGetMaxPcieLinkWidth(device d, unsigned *value) { *value = 16; return OK; }
int nvmlDeviceGetCurrPcieLinkGeneration(device d, unsigned *value) { *value = 4; return OK; }
int nvmlDeviceGetCurrPcieLinkWidth(device d, unsigned *value) { *value = number("STUB_WIDTH", 16); return OK; }
int nvmlDeviceGetTotalEccErrors(device d, unsigned kind, unsigned counter, unsigned long long *errors) {
    if (counter != 0) return INVALID;
    *errors = kind == 0 ? 3 : d->index == 0 ? number("STUB_ECC", 0) : 0;
    return OK;
}

static int list(device d, unsigned *room, user *users) {
    unsigned count = 0;
    user found[MOST];
    const char *text = d->index == 0 ? getenv("STUB_USERS") : NULL;
    for (; text && *text && count < MOST; text = strchr(text, ',') ? strchr(text, ',') + 1 : NULL) {
        unsigned long long bytes = 0;
        sscanf(text, "%u:%llu", &found[count].pid, &bytes);
        found[count].bytes = bytes ? bytes : ~0ULL;
        found[count].instance = found[count].compute = ~0U;
        count++;
    }
    if (!users || *room < count) {
        *room = count;
        return count ? INSUFFICIENT : OK;
    }
    memcpy(users, found, count * sizeof *users);
    *room = count;
    return OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(device d, unsigned *room, user *users) {
    return getenv("STUB_OLD") ? NOT_FOUND : list(d, room, users);
}
int nvmlDeviceGetComputeRunningProcesses_v2(device d, unsigned *room, user *users) { return list(d, room, users); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(device d, unsigned *room, user *users) { return NOT_SUPPORTED; }
