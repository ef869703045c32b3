/* What of CUDA's driver a launch calls, for a machine without a card: it runs nothing, and keeps
   what it was given. `launches.py` compiles and reads it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_FOUND = 500 };
enum { END = 0, BUFFER = 1, SIZE = 2 }; /* names in the list of a launch */

unsigned char buffer[32764]; /* arguments of the last launch */
size_t buffer_size;
unsigned int sizes[7];       /* blocks, threads and shared memory */
void *stream;
int status;                  /* what the next launches return */

int cuLaunchKernel(void *function, unsigned int x, unsigned int y, unsigned int z, unsigned int u,
                   unsigned int v, unsigned int w, unsigned int shared, void *queue,
                   void **pointers, void **list) {
  unsigned int given[7] = {x, y, z, u, v, w, shared};
  if (status) return status;
  if (pointers || function != (void *)3) return INVALID_VALUE;
  if (list[0] != (void *)BUFFER || list[2] != (void *)SIZE || list[4] != END) return INVALID_VALUE;
  memcpy(sizes, given, sizeof sizes);
  stream = queue;
  buffer_size = *(size_t *)list[3];
  memcpy(buffer, list[1], buffer_size);
  return SUCCESS;
}

int cuLibraryLoadData(void **library, const void *code, void *a, void *b, unsigned int m, void *c,
                      void *d, unsigned int n) {
  if (memcmp(code, "\177ELF", 4)) return INVALID_VALUE;
  *library = (void *)1;
  return SUCCESS;
}

int cuLibraryEnumerateKernels(void **kernels, unsigned int count, void *library) {
  if (count != 1 || library != (void *)1) return INVALID_VALUE;
  kernels[0] = (void *)2;
  return SUCCESS;
}

int cuKernelGetFunction(void **function, void *kernel) {
  *function = (void *)3;
  return kernel == (void *)2 ? SUCCESS : INVALID_VALUE;
}

int cuGetErrorString(int error, const char **text) {
  *text = "of the test";
  return SUCCESS;
}

int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags,
                        int *result) {
  Dl_info self;
  dladdr((void *)cuLaunchKernel, &self);
  *function = dlsym(dlopen(self.dli_fname, RTLD_NOW), name);
  if (result) *result = !*function;
  return *function ? SUCCESS : NOT_FOUND;
}
