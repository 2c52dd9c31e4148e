/* uncounted.c - for programs that count nothing: what clang calls at every branch does nothing.
 *
 * Tests and the tool that checks the rows share objects with the fuzz targets, which cost.c counts for. */
void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void) {}
