/* test_torch_threads.c - once PyTorch is loaded, loops run on its threads and Kiln's own have ended; forked children of such a
 * process run loops on their callers alone.  fake_torch.c stands for PyTorch. */
#include <dirent.h>
#include <dlfcn.h>
#include <fenv.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

#include "call_cases.h"
#include "fake_torch.h"
#include "run/cpus.h"
#include "run/pool.h"

/* The child of a process with threads starts threads of its own here; ThreadSanitizer asks to be told. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }

#define FAKE KILN_BUILD_DIR "/fake_torch/libtorch_cpu.so"
#define OLD KILN_BUILD_DIR "/fake_old/libtorch_cpu.so"

enum { PARTS = 300, ALL = 1 << 20, THREADS = 4 };

static const kiln_parallel how = {.threads = THREADS};
static void (*set_fake)(int n, bool fails);
static int (*fake_loops)(void);
static int32_t (*torch_for)(int64_t begin, int64_t end, int64_t grain, void (*body)(int64_t, int64_t, void *),
                            void *user);

static void find_in(void *library, const char *name, void *out) {
    void *address = dlsym(library, name);
    assert_non_null(address);
    memcpy(out, &address, sizeof address);
}

static void load_fake(void) {
    void *library = dlopen(FAKE, RTLD_NOW | RTLD_LOCAL);
    if (!library) fail_msg("%s", dlerror());
    find_in(library, "fake_torch_set", &set_fake);
    find_in(library, "fake_torch_loops", &fake_loops);
    find_in(library, "torch_parallel_for", &torch_for);
}

/* How many threads of Kiln's pool this process has. */
static int workers(void) {
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (const struct dirent *d; (d = readdir(tasks));) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", d->d_name);
        FILE *f = fopen(path, "re");
        if (!f) continue;
        if (fgets(name, sizeof name, f) && strcmp(name, "kiln-pool\n") == 0) n++;
        fclose(f);
    }
    closedir(tasks);
    return n;
}

static atomic_int runs[PARTS];

static void count_part(void *user, int64_t part) {
    (void)user;
    atomic_fetch_add(&runs[part], 1);
}

static void each_ran(int times) {
    for (int k = 0; k < PARTS; k++) assert_int_equal(atomic_exchange(&runs[k], 0), times);
}

static void run_loops(int n) {
    for (int k = 0; k < n; k++) kiln_pool_for(&how, ALL, PARTS, count_part, NULL);
}

/* Waits until all threads are there: each of the pool has then been started. */
static void meet(void *arg, int64_t k) {
    atomic_int *here = arg;
    (void)k;
    atomic_fetch_add(here, 1);
    for (int n = 0; n < 5000 && atomic_load(here) < THREADS; n++) usleep(1000);
}

static void start_own_threads(void) {
    atomic_int here = 0;
    kiln_pool_for(&how, ALL, THREADS, meet, &here);
    assert_int_equal(workers(), THREADS - 1);
}

static kiln_pool_owner owner(int *most) { return kiln_pool_whose(&how, most); }

static void in_a_child(void (*run)(void)) {
    pid_t pid = fork();
    int status = -1;
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(60);
        run();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* -- before PyTorch is loaded ------------------------------------------------------------------------------ */

static void must(bool so) {
    if (!so) _exit(1);
}

static void use_old(void) {
    int most = 0;
    must(owner(&most) == KILN_POOL_OWN);
    must(dlopen(OLD, RTLD_NOW | RTLD_LOCAL));
    run_loops(20);
    must(owner(&most) == KILN_POOL_OWN && most == THREADS && atomic_load(&runs[0]) == 20);
    atomic_int here = 0;
    kiln_pool_for(&how, ALL, THREADS, meet, &here);
    must(atomic_load(&here) == THREADS && workers() == THREADS - 1);
}

static void a_pytorch_without_the_functions_is_not_used(void **state) {
    (void)state;
    in_a_child(use_old);
}

/* The child loads PyTorch itself, so that its threads can be had there. */
static void use_new(void) {
    int most = 0;
    load_fake();
    run_loops(20);
    must(owner(&most) == KILN_POOL_TORCH && most == THREADS);
    must(fake_loops() == 20 && atomic_load(&runs[PARTS - 1]) == 20 && workers() == 0);
}

static void a_child_that_loads_pytorch_uses_its_threads(void **state) {
    (void)state;
    in_a_child(use_new);
}

/* -- while it is loaded ------------------------------------------------------------------------------------ */

static void loop_alone(void) {
    int most = 0;
    for (int k = 0; k < PARTS; k++) atomic_store(&runs[k], 0);
    must(owner(&most) == KILN_POOL_CALLER && most == 1);
    must(kiln_pool_threads(&how, INT64_MAX) == 1);
    run_loops(20);
    for (int k = 0; k < PARTS; k++) must(atomic_load(&runs[k]) == 20);
    must(workers() == 0);
}

/* Before any loop has looked for PyTorch, too. */
static void kilns_threads_end(void **state) {
    (void)state;
    int most = 0;
    start_own_threads();
    assert_int_equal(owner(&most), KILN_POOL_OWN);
    load_fake();
    in_a_child(loop_alone);
    assert_int_equal(workers(), THREADS - 1);
    run_loops(1);
    each_ran(1);
    assert_int_equal(workers(), 0);
    assert_int_equal(fake_loops(), 1);
    assert_int_equal(owner(&most), KILN_POOL_TORCH);
    assert_int_equal(most, THREADS);
    run_loops(50);
    each_ran(50);
    assert_int_equal(workers(), 0);
    assert_int_equal(fake_loops(), 51);
}

static void a_forked_child_runs_loops_alone(void **state) {
    (void)state;
    in_a_child(loop_alone);
    int before = fake_loops();
    run_loops(1);
    each_ran(1);
    assert_int_equal(fake_loops(), before + 1);
}

static void pytorchs_number_is_kept(void **state) {
    (void)state;
    int most = 0;
    set_fake(1, false);
    int before = fake_loops();
    run_loops(3);
    each_ran(3);
    assert_int_equal(fake_loops(), before);
    assert_int_equal(kiln_pool_threads(&how, INT64_MAX), 1);
    set_fake(3, false);
    assert_int_equal(kiln_pool_threads(&how, INT64_MAX), 3);
    set_fake(16, false);
    assert_int_equal(kiln_pool_threads(&how, INT64_MAX), THREADS);
    assert_int_equal(kiln_threads_limit(2), 0);
    assert_int_equal(owner(&most), KILN_POOL_TORCH);
    assert_int_equal(most, 2);
    assert_int_equal(kiln_threads_limit(0), 2);
    set_fake(THREADS, false);
}

/* By how many threads PyTorch has: all of them take part. */
static void little_work_is_not_shared(void **state) {
    (void)state;
    static const struct {
        int threads, worth;
    } cases[] = {{2, 8000}, {4, 8000}, {5, 20000}, {16, 20000}, {64, 20000}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        set_fake(cases[k].threads, false);
        assert_int_equal(kiln_pool_worth_ns(&how), cases[k].worth);
        assert_int_equal(kiln_pool_threads(&how, cases[k].worth - 1), 1);
        assert_true(kiln_pool_threads(&how, cases[k].worth) > 1);
    }
    set_fake(THREADS, false);
}

static void parts_that_pytorch_leaves_are_run(void **state) {
    (void)state;
    set_fake(THREADS, true);
    run_loops(2);
    each_ran(2);
    set_fake(THREADS, false);
}

static atomic_int shared_inside;

static void nested_part(void *user, int64_t part) {
    (void)user;
    (void)part;
    if (kiln_pool_threads(&how, INT64_MAX) > 1) atomic_fetch_add(&shared_inside, 1);
    kiln_pool_for(&how, ALL, PARTS, count_part, NULL);
}

static void nested_parts(int64_t begin, int64_t end, void *user) {
    while (begin < end) nested_part(user, begin++);
}

/* Inside loops of Kiln's and of PyTorch's. */
static void loops_inside_loops_run_on_their_callers(void **state) {
    (void)state;
    int before = fake_loops();
    assert_int_equal(torch_for(0, 10, 1, nested_parts, NULL), 0);
    each_ran(10);
    assert_int_equal(atomic_load(&shared_inside), 0);
    assert_int_equal(fake_loops(), ++before);
    kiln_pool_for(&how, ALL, 10, nested_part, NULL);
    each_ran(10);
    assert_int_equal(atomic_load(&shared_inside), 0);
    assert_int_equal(fake_loops(), before + 1);
}

static void *loop_in_thread(void *user) {
    (void)user;
    run_loops(50);
    return NULL;
}

static void loops_at_once(void **state) {
    (void)state;
    pthread_t threads[4];
    for (int k = 0; k < 4; k++) assert_int_equal(pthread_create(&threads[k], NULL, loop_in_thread, NULL), 0);
    for (int k = 0; k < 4; k++) assert_int_equal(pthread_join(threads[k], NULL), 0);
    each_ran(200);
    assert_int_equal(workers(), 0);
}

static atomic_int held, done;

static void hold(void *user, int64_t part) {
    (void)user;
    (void)part;
    atomic_store(&held, 1);
    for (int n = 0; n < 30000 && !atomic_load(&done); n++) usleep(1000);
}

static void *loop_that_holds(void *user) {
    (void)user;
    kiln_pool_for(&how, ALL, THREADS, hold, NULL);
    return NULL;
}

/* It shares its work if all threads together are no more than the CPUs. */
static void a_loop_beside_another(void **state) {
    (void)state;
    pthread_t other;
    int before = fake_loops(), fits = 2 * THREADS <= kiln_cpus_allowed();
    atomic_store(&held, 0);
    atomic_store(&done, 0);
    assert_int_equal(pthread_create(&other, NULL, loop_that_holds, NULL), 0);
    while (!atomic_load(&held)) usleep(1000);
    int threads = kiln_pool_threads(&how, INT64_MAX);
    run_loops(3);
    int shared = fake_loops() - before - 1;
    atomic_store(&done, 1);
    assert_int_equal(pthread_join(other, NULL), 0);
    each_ran(3);
    assert_int_equal(threads, fits ? THREADS : 1);
    assert_int_equal(shared, fits ? 3 : 0);
    assert_int_equal(kiln_pool_threads(&how, INT64_MAX), THREADS);
}

static atomic_int wrong;

static void look_at_mode(void *user, int64_t part) {
    (void)part;
    if (fegetround() != *(int *)user) atomic_fetch_add(&wrong, 1);
}

static void parts_have_the_callers_mode(void **state) {
    (void)state;
    int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, FE_TONEAREST};
    for (int k = 0; k < 4; k++) {
        fesetround(modes[k]);
        kiln_pool_for(&how, ALL, 1000, look_at_mode, &modes[k]);
    }
    fesetround(FE_TONEAREST);
    assert_int_equal(atomic_load(&wrong), 0);
}

static atomic_int hosted;

static void host_for(void *user, int64_t n, void (*body)(void *arg, int64_t k), void *arg) {
    (void)user;
    atomic_fetch_add(&hosted, 1);
    while (n-- > 0) body(arg, n);
}

/* A context's own parallel_for goes before PyTorch's. */
static void contexts_say_whose_threads(void **state) {
    (void)state;
    int n = 0, before = fake_loops();
    kiln_ctx *mine = open_with(
        (kiln_config){.mode = KILN_MODE_INTERP, .threads = 3, .parallel_for = host_for});
    kiln_ctx *other = open_with((kiln_config){.mode = KILN_MODE_INTERP, .threads = 3});
    assert_string_equal(kiln_threads_owner(mine, &n), "the host's");
    assert_string_equal(kiln_threads_owner(other, &n), "PyTorch's");
    assert_int_equal(n, 3);
    assert_string_equal(kiln_threads_owner(NULL, NULL), "");
    MUST_OK(kiln_parallel_for(mine, ALL, PARTS, count_part, NULL));
    assert_int_equal(atomic_load(&hosted), 1);
    MUST_OK(kiln_parallel_for(other, ALL, PARTS, count_part, NULL));
    each_ran(2);
    assert_int_equal(fake_loops(), before + 1);
    kiln_close(other);
    kiln_close(mine);
}

static int open_pool(void **state) {
    kiln_pool_retain();
    return call_setup(state);
}

static int close_pool(void **state) {
    kiln_pool_release();
    return call_teardown(state);
}

/* ORDER: PyTorch stays loaded from kilns_threads_end on. */
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pytorch_without_the_functions_is_not_used),
        cmocka_unit_test(a_child_that_loads_pytorch_uses_its_threads),
        cmocka_unit_test(kilns_threads_end),
        cmocka_unit_test(a_forked_child_runs_loops_alone),
        cmocka_unit_test(pytorchs_number_is_kept),
        cmocka_unit_test(little_work_is_not_shared),
        cmocka_unit_test(parts_that_pytorch_leaves_are_run),
        cmocka_unit_test(loops_inside_loops_run_on_their_callers),
        cmocka_unit_test(loops_at_once),
        cmocka_unit_test(a_loop_beside_another),
        cmocka_unit_test(parts_have_the_callers_mode),
        cmocka_unit_test(contexts_say_whose_threads),
    };
    return cmocka_run_group_tests(tests, open_pool, close_pool);
}
