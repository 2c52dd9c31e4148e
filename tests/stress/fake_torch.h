/* fake_torch.h - what test_torch_threads.c and fake_torch.c share. */
#ifndef FAKE_TORCH_H
#define FAKE_TORCH_H
#include <stdint.h>

enum {
    FAKE_HANGS = 99
}; /* how a process ends that runs a loop where OpenMP would wait forever: in a forked child */
#endif
