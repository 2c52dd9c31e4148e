/* choosers.c - the rows of target.def -> which chooser decides the form of calls on a device.
 *
 * A table, so that a call has its form before any context is asked: classes of one call are the same in every context.
 * Must not know what choosers decide. */
#include "infer/chooser.h"

#define TARGET(name, DEVICE) extern const kiln_chooser kiln_chooser_##name;
#include "target/target.def"
#undef TARGET

const kiln_chooser *const kiln_choosers[] = {
#define TARGET(name, DEVICE) [KILN_DEVICE_##DEVICE] = &kiln_chooser_##name,
#include "target/target.def"
#undef TARGET
};
