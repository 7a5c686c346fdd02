/* A stand-in for libnvidia-ml.so.1: GPU 0 is busy, GPU 1 has fallen off the bus. STUB_INIT is what nvmlInit returns. */
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, LOST = 15 };
typedef struct { int index; } *device;
static struct { int index; } devices[2] = {{0}, {1}};
static const char *words(int code) {
    return code == LOST ? "GPU is lost" : code == 18 ? "Driver/library version mismatch" : "Not Supported";
}

int nvmlInitWithFlags(unsigned flags) { const char *code = getenv("STUB_INIT"); return code ? atoi(code) : OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return words(code); }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *handle) {
    *handle = (device)&devices[index];
    return index > 1 ? INVALID : OK;
}
int nvmlDeviceGetName(device d, char *name, unsigned length) {
    if (d->index) return LOST;
    strncpy(name, "NVIDIA Stub 80GB", length);
    return OK;
}
int nvmlDeviceGetMaxClockInfo(device d, unsigned kind, unsigned *mhz) { *mhz = 1980; return OK; }
int nvmlDeviceGetClockInfo(device d, unsigned kind, unsigned *mhz) { *mhz = 1755; return OK; }
int nvmlDeviceGetUtilizationRates(device d, unsigned *rates) { rates[0] = 93; rates[1] = 40; return OK; }
int nvmlDeviceGetMemoryInfo(device d, unsigned long long *memory) {
    memory[0] = 80ULL << 30; memory[1] = 20ULL << 30; memory[2] = 60ULL << 30;
    return OK;
}
int nvmlDeviceGetTemperature(device d, unsigned sensor, unsigned *celsius) { *celsius = 66; return OK; }
int nvmlDeviceGetPowerUsage(device d, unsigned *milliwatts) { *milliwatts = 512345; return OK; }
int nvmlDeviceGetEnforcedPowerLimit(device d, unsigned *milliwatts) { return NOT_SUPPORTED; }
int nvmlDeviceGetCurrentClocksThrottleReasons(device d, unsigned long long *mask) { *mask = 0x4 | 0x40; return OK; }
