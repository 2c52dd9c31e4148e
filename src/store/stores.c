/* stores.c - the rows of store.def -> the stores of a context, in the order in which they are asked.
 *
 * Owns the stores that it opened or was given.  Must not know what any of them does. */
#include "store/store.h"

static const struct opener {
    kiln_status (*open)(kiln_store **out);
    kiln_counter counter;
} openers[] = {
#define STORE(name, counter) {kiln_store_open_##name, KILN_COUNTER_##counter},
#include "store/store.def"
#undef STORE
};

enum { NOPENERS = sizeof openers / sizeof *openers };

static uint64_t price_of(const kiln_store *s) {
    return atomic_load_explicit(&s->price, memory_order_relaxed);
}

kiln_status kiln_stores_add(kiln_stores *stores, kiln_store *s) {
    if (stores->n == KILN_STORES_MAX) return KILN_BUG("more than %d stores", KILN_STORES_MAX);
    int k = stores->n++;
    s->stop = stores->stop;
    for (; k > 1 && price_of(stores->at[k - 1]) > price_of(s); k--) stores->at[k] = stores->at[k - 1];
    stores->at[k] = s;
    if (!kiln_store_is_slow(s)) stores->nquick++;
    return KILN_OK;
}

kiln_status kiln_stores_open(kiln_stores *stores, const atomic_bool *stop) {
    stores->stop = stop;
    _Static_assert((int)NOPENERS <= (int)KILN_STORES_MAX,
                   "store.def has more rows than a context has places");
    for (int k = 0; k < NOPENERS; k++) {
        kiln_store *s = NULL;
        kiln_status st = openers[k].open(&s);
        if (st == KILN_OK) {
            s->counter = openers[k].counter;
            st = kiln_stores_add(stores, s);
        }
        if (st != KILN_OK) {
            kiln_stores_close(stores);
            return st;
        }
    }
    return KILN_OK;
}

void kiln_stores_lock(kiln_stores *stores, bool on) {
    for (int k = 0; k < stores->n; k++) {
        kiln_store *s = stores->at[on ? k : stores->n - 1 - k];
        if (s->lock) s->lock(s, on);
    }
}

void kiln_stores_close(kiln_stores *stores) {
    for (int k = 0; k < stores->n; k++) stores->at[k]->close(stores->at[k]);
    *stores = (kiln_stores){.n = 0};
}
