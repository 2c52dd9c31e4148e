/* torch_threads.h - PyTorch's threads as a place to run loops, for processes that have loaded PyTorch.
 *
 * Two sets of threads on the same cores disturb each other: PyTorch's threads keep looking for work after each of its loops. */
#ifndef KILN_TORCH_THREADS_H
#define KILN_TORCH_THREADS_H
#include "base/base.h"

/* How many of PyTorch's threads a loop of the calling thread may have now.  0: PyTorch is not loaded, or offers no loops.  1: the
 * loop has to run on its caller alone, because torch.set_num_threads says so, because the caller is inside a loop of PyTorch's
 * already, or because this process was forked from one that had PyTorch loaded. */
int kiln_torch_threads(void);

/* Whether PyTorch was loaded before this process was forked.  Its threads do not exist here, but PyTorch would wait for them. */
bool kiln_torch_forked(void);

/* Runs body(user, 0) to body(user, n - 1) on PyTorch's threads, the caller among them, and returns when all have returned.  Some
 * may not have been run if PyTorch had no memory.  Only where kiln_torch_threads has just returned more than 1. */
void kiln_torch_run(int n, void (*body)(void *user, int64_t k), void *user);
#endif
