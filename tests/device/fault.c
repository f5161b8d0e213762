// A fault on the device, in a running program: once the file that SKIFF_TEST_FAULT names is there, a kernel of this
// library's writes to an address that nobody has, on device 0 or the one that SKIFF_TEST_FAULT_DEVICE numbers. The driver
// loads it where CUDA_INJECTION64_PATH names it.
//
//   cc -shared -fPIC -O1 fault.c -o fault.so -ldl -lpthread
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char* kernel =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry fault() {\n"
    "  .reg .b64 %a;\n  .reg .b32 %v;\n"
    "  mov.u64 %a, 4096;\n  mov.u32 %v, 1;\n  st.global.u32 [%a], %v;\n  ret;\n}\n";

static void need(int code, const char* what) {
  if (code != 0) fprintf(stderr, "fault: %s: CUDA driver error %d\n", what, code);
}

static void* wait_and_fault(void* file) {
  void *context = NULL, *module = NULL, *function = NULL, *driver = dlopen("libcuda.so.1", RTLD_NOW);
  while (access(file, F_OK) != 0) usleep(1000);
  int (*retain)(void**, int) = dlsym(driver, "cuDevicePrimaryCtxRetain");
  int (*set)(void*) = dlsym(driver, "cuCtxSetCurrent");
  int (*load)(void**, const void*) = dlsym(driver, "cuModuleLoadData");
  int (*find)(void**, void*, const char*) = dlsym(driver, "cuModuleGetFunction");
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**) =
      dlsym(driver, "cuLaunchKernel");
  const char* number = getenv("SKIFF_TEST_FAULT_DEVICE");
  need(retain(&context, number != NULL ? atoi(number) : 0), "context");
  need(set(context), "context");
  need(load(&module, kernel), "module");
  need(find(&function, module, "fault"), "kernel");
  need(launch(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), "launch");
  return NULL;
}

int InitializeInjection(void) {
  pthread_t thread;
  char* file = getenv("SKIFF_TEST_FAULT");
  if (file != NULL) pthread_create(&thread, NULL, wait_and_fault, file);
  return 1;
}
