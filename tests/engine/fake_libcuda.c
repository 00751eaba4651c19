/* libcuda.so.1 for machines without a GPU: the few calls that a checkup makes, without a device.
 * FAKE_CUINIT: answer of cuInit (default 0), or "hang"; FAKE_CUDA_VERSION: default 13000;
 * FAKE_UUIDS: the devices, 32 hexadecimal digits each with commas between. CUDA_VISIBLE_DEVICES as
 * empty text or -1 hides all; a list that begins with GPU- keeps those that it names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char shown[16][33];
static int count;

static void add(const char *uuid, const char *mask) {
    char dashed[64];
    snprintf(dashed, sizeof dashed, "GPU-%.8s-%.4s-%.4s-%.4s-%.12s", uuid, uuid + 8, uuid + 12,
             uuid + 16, uuid + 20);
    if (mask && !strncmp(mask, "GPU-", 4) && !strstr(mask, dashed)) return;
    strncpy(shown[count++], uuid, 32);
}

int cuInit(unsigned flags) {
    const char *answer = getenv("FAKE_CUINIT"), *mask = getenv("CUDA_VISIBLE_DEVICES");
    const char *uuids = getenv("FAKE_UUIDS");
    (void)flags;
    if (answer && !strcmp(answer, "hang")) sleep(60);
    if (answer && atoi(answer)) return atoi(answer);
    count = 0;
    if (mask && (!*mask || !strcmp(mask, "-1"))) return 100;
    for (; uuids && strlen(uuids) >= 32 && count < 16; uuids += 32 + (uuids[32] == ','))
        add(uuids, mask);
    return count ? 0 : 100;
}

int cuDriverGetVersion(int *version) {
    const char *given = getenv("FAKE_CUDA_VERSION");
    *version = given ? atoi(given) : 13000;
    return 0;
}

int cuDeviceGetCount(int *number) { return *number = count, 0; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, 0; }
int cuDeviceGetName(char *name, int size, int device) {
    (void)device;
    snprintf(name, (size_t)size, "NVIDIA H200");
    return 0;
}
int cuDeviceGetPCIBusId(char *bus, int size, int device) {
    snprintf(bus, (size_t)size, "0000:%02x:00.0", 6 + device);
    return 0;
}
int cuDeviceGetUuid(unsigned char *raw, int device) {
    for (int i = 0; i < 16; i++) {
        unsigned one;
        sscanf(shown[device] + 2 * i, "%2x", &one);
        raw[i] = (unsigned char)one;
    }
    return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == 75 ? 9 : 0;
    return 0;
}
