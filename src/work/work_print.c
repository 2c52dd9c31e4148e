/* work_print.c - a work as text, for people: its axes, buffers and steps, as `kiln explain --stage=plan` shows them.
 *
 * Arguments and operators are numbers in a work; who prints it says what they are called.  Results are printed with the call
 * they belong to (src/infer/infer_print.c), since that file knows which results were given. */
#include "work/work.h"

void kiln_sizes_print(kiln_sb *out, int rank, const int64_t *sizes) {
    kiln_sb_putc(out, '[');
    for (int i = 0; i < rank; i++) kiln_sb_printf(out, "%s%lld", i ? ", " : "", (long long)sizes[i]);
    kiln_sb_putc(out, ']');
}

void kiln_work_buffer_print(kiln_sb *out, const kiln_work *w, const kiln_work_names *names, int b) {
    const kiln_buffer *buf = &kiln_work_buffers(w)[b];
    if (buf->kind == KILN_BUFFER_TMP) kiln_sb_puts(out, "temporary for ");
    if (b < w->nresults || buf->kind == KILN_BUFFER_RESULT)
        kiln_sb_printf(out, "result %d", buf->which);
    else if (names->arg[buf->which])
        kiln_sb_puts(out, names->arg[buf->which]);
    else
        kiln_sb_printf(out, "argument %d", buf->which);
}

static void print_axes(kiln_sb *out, const kiln_work *w) {
    static const char *const roles[] = KILN_ROLE_NAMES;
    const int64_t *n = kiln_work_words(w, w->n);
    kiln_sb_puts(out, "axes:");
    for (int d = 0; d < w->axes.ndim; d++)
        kiln_sb_printf(out, "%s %s %lld", d ? "," : "",
                       roles[d < w->axes.ngrid ? KILN_ROLE_GRID : w->role[d]], (long long)n[d]);
    kiln_sb_puts(out, w->axes.triangle ? ", a triangle\n" : "\n");
}

static void print_buffer(kiln_sb *out, const kiln_work *w, const kiln_work_names *names, int b) {
    static const char *const strides[] = KILN_STRIDE_NAMES;
    const kiln_buffer *buf = &kiln_work_buffers(w)[b];
    kiln_sb_puts(out, "  ");
    kiln_work_buffer_print(out, w, names, b);
    kiln_sb_printf(out, ": %s", kiln_dtype_name((kiln_dtype)buf->dtype));
    if (b < w->axes.nbuffers) {
        const char *turned = w->axes.turned >> b & 1 ? " when turned" : "";
        kiln_sb_printf(out, " %s%s, byte strides ", strides[buf->stride], turned);
        kiln_sizes_print(out, w->axes.ndim, kiln_work_strides(w, b));
    }
    if (buf->kind == KILN_BUFFER_TMP) kiln_sb_printf(out, ", %lld bytes", (long long)buf->nbytes);
    kiln_sb_putc(out, '\n');
}

static void print_step(kiln_sb *out, const kiln_work *w, const kiln_work_names *names, const kiln_step *s) {
    if (s->kind == KILN_STEP_LAUNCH) {
        kiln_sb_puts(out, "  launch");
        if (s->u.launch.end) kiln_sb_printf(out, " nests %d to %d", s->u.launch.first, s->u.launch.end - 1);
    } else if (s->kind == KILN_STEP_CALL) {
        const char *op = names->op[s->u.call.op];
        kiln_sb_puts(out, "  call ");
        if (op)
            kiln_sb_puts(out, op);
        else
            kiln_sb_printf(out, "operator %d", s->u.call.op);
    } else {
        kiln_sb_puts(out, "  copy ");
        kiln_work_buffer_print(out, w, names, s->u.copy.from);
        kiln_sb_puts(out, " to ");
        kiln_work_buffer_print(out, w, names, s->u.copy.to);
        kiln_sb_puts(out, ", ");
        kiln_sizes_print(out, s->u.copy.ndim, kiln_work_words(w, s->u.copy.n));
    }
    kiln_sb_putc(out, '\n');
}

void kiln_work_print(kiln_sb *out, const kiln_work *w, const kiln_work_names *names) {
    if (w->axes.ndim) print_axes(out, w);
    if (w->nbuffers) kiln_sb_puts(out, "buffers:\n");
    for (int b = 0; b < w->nbuffers; b++) print_buffer(out, w, names, b);
    kiln_sb_puts(out, "steps:\n");
    for (int k = 0; k < w->nsteps; k++) print_step(out, w, names, &kiln_work_steps(w)[k]);
}
