/* A CUDA driver without a card, for tests of what runs on the host: memory is the host's, copies are
   made, machine code is accepted and kernels do nothing. It has what numba-cuda asks for, with two
   devices of compute capability 9.0; FAKE_LOG names a file for what was called. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_CONTEXT = 201, NOT_FOUND = 500 };
enum { DEVICES = 2, CONTEXT = 0x1000, KERNEL = 0x100000, MOST = 4096, DEPTH = 16 };
static const uint64_t TOTAL = 1ull << 30;

static pid_t owner;
static uint64_t used;
static struct { char *at; uint64_t size; } blocks[MOST];
static char *names[MOST];
static int num_blocks, num_names;
static __thread intptr_t contexts[DEPTH];
static __thread int depth;

static void note(const char *what, uint64_t size) {
    const char *path = getenv("FAKE_LOG");
    FILE *log = path ? fopen(path, "a") : NULL;
    if (log) {
        fprintf(log, "%s %llu\n", what, (unsigned long long)size);
        fclose(log);
    }
}

int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags, int *status) {
    void *self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    *function = self ? dlsym(self, name) : NULL;
    if (status) *status = *function ? 0 : 1;
    return *function ? OK : NOT_FOUND;
}
int cuGetProcAddress_v2(const char *n, void **f, int v, uint64_t g, int *s) {
    return cuGetProcAddress(n, f, v, g, s);
}
int cuGetErrorName(int error, const char **name) {
    *name = error == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR";
    return OK;
}
int cuGetErrorString(int error, const char **text) { return cuGetErrorName(error, text); }

int cuInit(unsigned flags) { if (!owner) owner = getpid(); return OK; }
int cuDriverGetVersion(int *version) { *version = 13000; return OK; }
int cuDeviceGetCount(int *count) { *count = DEVICES; return OK; }
int cuDeviceGet(int *device, int i) { *device = i; return i < DEVICES ? OK : 101; }
int cuDeviceGetName(char *name, int size, int device) {
    snprintf(name, size, "Fake %d", device);
    return OK;
}
int cuDeviceGetUuid(char *uuid, int device) { memset(uuid, device, 16); return OK; }
int cuDeviceTotalMem(uint64_t *size, int device) { *size = TOTAL; return OK; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    switch (attribute) {
    case 75: *value = 9; break;           /* compute capability, major */
    case 76: *value = 0; break;           /* and minor */
    case 16: *value = 132; break;         /* multiprocessors */
    case 38: *value = 50 << 20; break;    /* second cache */
    case 10: *value = 32; break;          /* threads of a warp */
    default: *value = 1;
    }
    return OK;
}

int cuDevicePrimaryCtxRetain(intptr_t *context, int device) {
    *context = CONTEXT + device;
    return OK;
}
int cuDevicePrimaryCtxRelease(int device) { return OK; }
int cuCtxGetCurrent(intptr_t *context) {
    *context = depth ? contexts[depth - 1] : 0;
    return getpid() == owner ? OK : NOT_INITIALIZED;
}
int cuCtxGetDevice(int *device) {
    if (getpid() != owner) return NOT_INITIALIZED;
    if (!depth) return NO_CONTEXT;
    *device = contexts[depth - 1] - CONTEXT;
    return OK;
}
int cuCtxSetCurrent(intptr_t context) {
    depth += depth ? 0 : 1;
    contexts[depth - 1] = context;
    return OK;
}
int cuCtxPushCurrent(intptr_t context) { contexts[depth++] = context; return OK; }
int cuCtxPopCurrent(intptr_t *context) {
    if (!depth) return NO_CONTEXT;
    *context = contexts[--depth];
    return OK;
}
int cuCtxSynchronize(void) { note("synchronize", 0); return OK; }
int cuStreamSynchronize(void *stream) { note("synchronize stream", (uint64_t)stream); return OK; }

int cuMemGetInfo(uint64_t *left, uint64_t *total) {
    *left = TOTAL - used;
    *total = TOTAL;
    return OK;
}
int cuMemAlloc(uint64_t *pointer, uint64_t size) {
    if (size > TOTAL - used || num_blocks == MOST) return OUT_OF_MEMORY;
    char *at = malloc(size);
    memset(at, 0xab, size);
    blocks[num_blocks].at = at;
    blocks[num_blocks++].size = size;
    used += size;
    *pointer = (uint64_t)at;
    note("allocate", size);
    return OK;
}
int cuMemFree(uint64_t pointer) {
    for (int i = 0; i < num_blocks; i++)
        if (blocks[i].at == (char *)pointer) {
            free(blocks[i].at);
            used -= blocks[i].size;
            blocks[i] = blocks[--num_blocks];
            return OK;
        }
    return 1;
}
int cuMemcpyHtoD(uint64_t to, const void *from, size_t size) {
    memmove((void *)to, from, size);
    note("to device", size);
    return OK;
}
int cuMemcpyDtoH(void *to, uint64_t from, size_t size) {
    memmove(to, (void *)from, size);
    note("to host", size);
    return OK;
}
int cuMemcpyDtoD(uint64_t to, uint64_t from, size_t size) {
    memmove((void *)to, (void *)from, size);
    note("on device", size);
    return OK;
}
int cuMemsetD8(uint64_t to, unsigned char byte, size_t size) {
    memset((void *)to, byte, size);
    note("set", size);
    return OK;
}

int cuLibraryLoadData(intptr_t *library, const char *code, void *a, void *b, unsigned c, void *d,
                      void *e, unsigned f) {
    static intptr_t next = 1;
    note("load", 0);
    *library = next++;
    return memcmp(code, "\177ELF", 4) ? 200 : OK;
}
int cuLibraryUnload(intptr_t library) { return OK; }
int cuLibraryGetKernel(intptr_t *kernel, intptr_t library, const char *name) {
    names[num_names] = strdup(name);
    *kernel = KERNEL + num_names++;
    return OK;
}
int cuKernelGetAttribute(int *value, int attribute, intptr_t kernel, int device) {
    *value = 32;
    return OK;
}
int cuLaunchKernel(intptr_t kernel, unsigned x, unsigned y, unsigned z, unsigned u, unsigned v,
                   unsigned w, unsigned shared, void *stream, void **parameters, void **extra) {
    note(names[kernel - KERNEL], (uint64_t)x * u);
    return OK;
}
