/* bench_build.c - what compiling and loading a class cost beyond the bare tools; one JSON line per figure.
 *
 * compile: kiln_prepare of a class never seen (lower, emit, build, load, self-test) against cc1 | as on
 *          the same source with the same flags, files in and out, spawned the plainest way.
 * load:    the own loader against dlopen + dlsym + dlclose of the same object, linked beforehand.
 * Both sides alternate in one run and medians are compared, since times on shared machines drift.
 * Exits non-zero when a goal is missed.  Looks into src/target/cpu for what no public call shows alone. */
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "target/cpu/build.h"
#include "target/cpu/elf_load.h"
#include "target/cpu/proc.h"
#include "target/cpu/tools.h"

enum { COMPILES = 21, LOADS = 2001 };

static int missed; /* goals */

static char folder[] = "/tmp/kiln-bench-XXXXXX";
static char source_path[64], object_path[64], library_path[64];

static void die(const char *what) {
    fprintf(stderr, "bench_build: %s: %s\n", what, kiln_last_error());
    exit(1);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, compare);
    return v[n / 2];
}

static void report(const char *name, double ours, double peer, const char *peer_name, double goal) {
    printf("{\"bench\":\"%s\",\"us\":%.2f,\"peer\":\"%s\",\"peer_us\":%.2f,\"ratio\":%.3f,"
           "\"goal\":%.2f,\"met\":%s}\n",
           name, ours, peer_name, peer, ours / peer, goal, ours / peer <= goal ? "true" : "false");
    missed += ours / peer > goal;
}

/* -- compiling ------------------------------------------------------------------------------------- */

static pid_t spawn(char **argv, int in, int out) {
    posix_spawn_file_actions_t actions;
    pid_t pid = 0;
    posix_spawn_file_actions_init(&actions);
    if (in >= 0) posix_spawn_file_actions_adddup2(&actions, in, 0);
    if (out >= 0) posix_spawn_file_actions_adddup2(&actions, out, 1);
    if (posix_spawn(&pid, argv[0], &actions, NULL, argv, environ) != 0) die(argv[0]);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

static void bare(char **cc1, char **as) {
    int ends[2], status[2] = {-1, -1};
    int in = open(source_path, O_RDONLY | O_CLOEXEC);
    if (in < 0 || pipe2(ends, O_CLOEXEC) != 0) die("cannot prepare the bare compile");
    pid_t first = spawn(cc1, in, ends[1]), second = spawn(as, ends[0], -1);
    close(in);
    close(ends[0]);
    close(ends[1]);
    waitpid(first, &status[0], 0);
    waitpid(second, &status[1], 0);
    if (status[0] != 0 || status[1] != 0) die("the bare compile failed");
}

static void add_words(char **to, char *const *words, char *const *more) {
    while (*words) *to++ = *words++;
    while (*more) *to++ = *more++;
    *to = NULL;
}

/* One call per class: a context that has its compiler at hand but has never seen `name` on f32. */
typedef struct subject {
    kiln_ctx *ctx;
    const kiln_op *op;
    kiln_tensor *x;
    kiln_value args[2];
    size_t nargs;
} subject;

static void open_subject(subject *s, const char *name, size_t nargs) {
    const int64_t sizes[1] = {64};
    const kiln_op *neg;
    kiln_kernel *warm;
    if (kiln_open(NULL, &s->ctx) != KILN_OK || kiln_op_find(s->ctx, name, &s->op) != KILN_OK) die(name);
    if (kiln_tensor_new(KILN_F32, 1, sizes, NULL, &s->x) != KILN_OK) die("kiln_tensor_new");
    s->args[0] = s->args[1] = kiln_v_tensor(s->x);
    s->nargs = nargs;
    if (kiln_op_find(s->ctx, "neg", &neg) != KILN_OK ||
        kiln_prepare(s->ctx, neg, s->args, 1, &warm) != KILN_OK)
        die("neg");
    kiln_kernel_release(warm);
}

static void close_subject(subject *s) {
    kiln_tensor_release(s->x);
    kiln_close(s->ctx);
}

static double prepare_us(const char *name, size_t nargs) {
    subject s;
    kiln_kernel *k;
    open_subject(&s, name, nargs);
    int64_t a = kiln_clock_ns();
    if (kiln_prepare(s.ctx, s.op, s.args, s.nargs, &k) != KILN_OK) die(name);
    int64_t b = kiln_clock_ns();
    kiln_kernel_release(k);
    close_subject(&s);
    return (double)(b - a) / 1e3;
}

static char *source_of(const char *name, size_t nargs) {
    subject s;
    char *text;
    open_subject(&s, name, nargs);
    if (kiln_explain(s.ctx, s.op, s.args, s.nargs, "source", &text) != KILN_OK) die(name);
    if (kiln_file_write_atomic(source_path, text, strlen(text)) != KILN_OK) die("cannot write the source");
    close_subject(&s);
    return text;
}

static void bench_compile(kiln_toolchain *tc, const char *name, size_t nargs) {
    static double ours[COMPILES], peer[COMPILES];
    const kiln_tools *t;
    if (kiln_toolchain_tools(tc, kiln_toolchain_deadline(tc), &t) != KILN_OK) die("no tools");
    if (t->route != KILN_CC_DIRECT) die("no direct route");
    char *cc1[600], *as[600], march[64], label[64];
    snprintf(march, sizeof march, "-march=%s", kiln_isa_march(kiln_isa_detect()));
    add_words(cc1, t->cc1, (char *[]){march, "-o", "-", NULL});
    add_words(as, t->as, (char *[]){"-o", object_path, NULL});
    kiln_text_free(source_of(name, nargs));
    for (int i = 0; i < COMPILES; i++) {
        int64_t a = kiln_clock_ns();
        bare(cc1, as);
        peer[i] = (double)(kiln_clock_ns() - a) / 1e3;
        ours[i] = prepare_us(name, nargs);
    }
    snprintf(label, sizeof label, "compile %s f32", name);
    report(label, median(ours, COMPILES), median(peer, COMPILES), "cc1 | as", 1.5);
}

/* -- loading ---------------------------------------------------------------------------------------- */

static void link_peer(const kiln_object *o) {
    char command[256];
    kiln_object copy = {.bytes = malloc(o->n), .n = o->n};
    memcpy(copy.bytes, o->bytes, o->n);
    kiln_elf_export(&copy, KILN_KERNEL_SYMBOL);
    if (kiln_file_write_atomic(object_path, copy.bytes, copy.n) != KILN_OK) die("cannot write the object");
    free(copy.bytes);
    snprintf(command, sizeof command, "gcc -shared -o %s %s", library_path, object_path);
    if (system(command) != 0) die("cannot link the peer");
}

static void bench_load(kiln_toolchain *tc, const char *name) {
    static double ours[LOADS], peer[LOADS];
    kiln_object o = {0};
    char *src = source_of(name, 1);
    if (kiln_build(tc, kiln_isa_detect(), src, strlen(src), &o) != KILN_OK) die("kiln_build");
    kiln_text_free(src);
    link_peer(&o);
    for (int i = 0; i < LOADS; i++) {
        kiln_code *code = NULL;
        int64_t a = kiln_clock_ns();
        void *library = dlopen(library_path, RTLD_NOW | RTLD_LOCAL);
        if (!library || !dlsym(library, KILN_KERNEL_SYMBOL)) die("dlopen");
        dlclose(library);
        int64_t b = kiln_clock_ns();
        if (kiln_code_load(NULL, &o, KILN_KERNEL_SYMBOL, &code) != KILN_OK) die("kiln_code_load");
        kiln_code_free(code);
        int64_t c = kiln_clock_ns();
        peer[i] = (double)(b - a) / 1e3;
        ours[i] = (double)(c - b) / 1e3;
    }
    report("load gelu f32", median(ours, LOADS), median(peer, LOADS), "dlopen", 0.25);
    kiln_object_fini(&o);
}

static void bench_open(const char *cc) {
    double ours[9];
    for (int i = 0; i < 9; i++) {
        kiln_toolchain *tc = NULL;
        int64_t a = kiln_clock_ns();
        if (kiln_toolchain_open(cc, folder, &tc) != KILN_OK) die("kiln_toolchain_open");
        (void)kiln_toolchain_route(tc);
        ours[i] = (double)(kiln_clock_ns() - a) / 1e3;
        kiln_toolchain_close(tc);
    }
    printf("{\"bench\":\"find_compiler\",\"us\":%.2f}\n", median(ours, 9));
}

int main(void) {
    kiln_toolchain *tc = NULL;
    if (!mkdtemp(folder)) die("cannot make a folder");
    snprintf(source_path, sizeof source_path, "%s/k.c", folder);
    snprintf(object_path, sizeof object_path, "%s/k.o", folder);
    snprintf(library_path, sizeof library_path, "%s/k.so", folder);
    if (kiln_toolchain_open(NULL, folder, &tc) != KILN_OK) die("kiln_toolchain_open");
    bench_open(NULL);
    bench_compile(tc, "abs", 1);
    bench_compile(tc, "add.Tensor", 2);
    bench_compile(tc, "gelu", 1);
    bench_load(tc, "gelu");
    kiln_toolchain_close(tc);
    unlink(source_path);
    unlink(object_path);
    unlink(library_path);
    rmdir(folder);
    return missed ? 1 : 0;
}
