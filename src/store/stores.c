/* stores.c - the rows of store.def -> the stores of a context, in the order in which they are asked.
 *
 * Checks every entry that a store gives, before anyone loads it, and counts refused entries, with one counter for each cause.  Owns the stores that it
 * opened or was given, and the user's key.  Must not know what any store does. */
#include <string.h>

#include "store/store.h"

static const struct opener {
    kiln_status (*open)(const kiln_store_host *host, kiln_store **out);
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

void kiln_blob_fini(kiln_blob *b) {
    kiln_code_free(b->code);
    kiln_free(b->entry);
    kiln_free(b->source);
    *b = (kiln_blob){0};
}

/* -- open and close ---------------------------------------------------------------------------------------- */

kiln_status kiln_stores_add(kiln_stores *stores, kiln_store *s) {
    if (stores->n == KILN_STORES_MAX) return KILN_BUG("more than %d stores", KILN_STORES_MAX);
    int k = stores->n++;
    s->host = stores->host;
    for (; k > 1 && price_of(stores->at[k - 1]) > price_of(s); k--) stores->at[k] = stores->at[k - 1];
    stores->at[k] = s;
    if (!kiln_store_is_slow(s)) stores->nquick++;
    stores->keep_bytes |= s->keeps_bytes;
    return KILN_OK;
}

static kiln_status open_store(kiln_stores *stores, const struct opener *o) {
    kiln_store *s = NULL;
    KILN_TRY(o->open(stores->host, &s));
    if (!s) return KILN_OK;
    s->counter = o->counter;
    return kiln_stores_add(stores, s);
}

kiln_status kiln_stores_open(kiln_stores *stores, const kiln_store_host *host) {
    stores->host = host;
    pthread_mutex_init(&stores->lock, NULL);
    _Static_assert((int)NOPENERS <= (int)KILN_STORES_MAX,
                   "store.def has more rows than a context has places");
    for (int k = 0; k < NOPENERS; k++) {
        kiln_status st = open_store(stores, &openers[k]);
        if (st != KILN_OK) {
            kiln_stores_close(stores);
            return st;
        }
    }
    return KILN_OK;
}

void kiln_stores_lock(kiln_stores *stores, bool on) {
    if (!stores->host) return; /* not opened yet */
    if (on) pthread_mutex_lock(&stores->lock);
    for (int k = 0; k < stores->n; k++) {
        kiln_store *s = stores->at[on ? k : stores->n - 1 - k];
        if (s->lock) s->lock(s, on);
    }
    if (!on) pthread_mutex_unlock(&stores->lock);
}

void kiln_stores_forked(kiln_stores *stores) {
    for (int k = 0; k < stores->n; k++)
        if (stores->at[k]->forked) stores->at[k]->forked(stores->at[k]);
}

void kiln_stores_doctor(kiln_stores *stores, kiln_sb *out) {
    const kiln_key_file *key;
    if (kiln_stores_key(stores, &key) != KILN_OK) {
        kiln_sb_printf(out, "!key: not used: %s\n", kiln_last_error());
        kiln_clear_error();
    }
    for (int k = 0; k < stores->n; k++)
        if (stores->at[k]->doctor) stores->at[k]->doctor(stores->at[k], out);
}

void kiln_stores_close(kiln_stores *stores) {
    if (!stores->host) return;
    for (int k = 0; k < stores->n; k++) stores->at[k]->close(stores->at[k]);
    kiln_key_close(stores->key);
    pthread_mutex_destroy(&stores->lock);
    *stores = (kiln_stores){.n = 0};
}

/* -- the key ----------------------------------------------------------------------------------------------- */

kiln_status kiln_stores_key(kiln_stores *stores, const kiln_key_file **key) {
    *key = NULL;
    if (!stores->host->key_path) return KILN_OK;
    pthread_mutex_lock(&stores->lock);
    kiln_status st = stores->key ? KILN_OK : kiln_key_open(stores->host->key_path, &stores->key);
    *key = stores->key;
    pthread_mutex_unlock(&stores->lock);
    return st;
}

/* -- entries ------------------------------------------------------------------------------------------------- */

static kiln_counter counter_of(kiln_stored_fault fault) {
    switch (fault) {
    case KILN_STORED_FINE:
    case KILN_STORED_CORRUPT: break;
    case KILN_STORED_STALE: return KILN_COUNTER_stale_entries;
    case KILN_STORED_UNSIGNED: return KILN_COUNTER_unsigned_entries;
    case KILN_STORED_FOREIGN: return KILN_COUNTER_foreign_entries;
    }
    return KILN_COUNTER_corrupt_entries;
}

static kiln_status refuse(const kiln_store *s, const kiln_digest *d, kiln_stored_fault fault) {
    char text[KILN_DIGEST_TEXT], why[400];
    strncpy(why, kiln_last_error(), sizeof why - 1);
    why[sizeof why - 1] = 0;
    kiln_digest_print(d, text);
    kiln_store_count(s, counter_of(fault));
    if (s->drop && fault != KILN_STORED_UNSIGNED) s->drop((kiln_store *)s, d);
    return KILN_FAIL(KILN_E_IO, "entry %s is refused: %s", text, why);
}

kiln_status kiln_stores_get(kiln_stores *stores, kiln_store *s, const kiln_digest *d, kiln_blob *out,
                            bool *found) {
    const kiln_key_file *key = NULL;
    *found = false;
    if (s->needs_key && kiln_stores_key(stores, &key) != KILN_OK) {
        kiln_store_count(s, KILN_COUNTER_store_errors);
        return KILN_E_IO;
    }
    if (s->needs_key && !key) return KILN_OK; /* the store's `doctor` says so */
    KILN_TRY(s->get(s, d, out, found));
    if (!*found || out->resident) return KILN_OK;
    kiln_stored_fault fault = kiln_stored_read(out->entry, out->nentry, d, key, &out->says);
    if (fault != KILN_STORED_FINE) {
        *found = false;
        kiln_blob_fini(out);
        return refuse(s, d, fault);
    }
    out->work = (size_t)out->says.work;
    return KILN_OK;
}

/* -- who builds -------------------------------------------------------------------------------------------------- */

static void unclaim_first(kiln_stores *stores, int n, const kiln_digest *d) {
    while (n-- > 0)
        if (stores->at[n]->unclaim) stores->at[n]->unclaim(stores->at[n], d);
}

kiln_claim kiln_stores_claim(kiln_stores *stores, const kiln_digest *d) {
    for (int k = 0; k < stores->n; k++) {
        kiln_store *s = stores->at[k];
        if (!s->claim || s->claim(s, d) == KILN_CLAIM_OURS) continue;
        unclaim_first(stores, k, d);
        return KILN_CLAIM_BUSY;
    }
    return KILN_CLAIM_OURS;
}

void kiln_stores_unclaim(kiln_stores *stores, const kiln_digest *d) { unclaim_first(stores, stores->n, d); }
