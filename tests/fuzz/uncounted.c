/* uncounted.c - for programs of the fuzz build that count nothing: what clang calls at every branch does nothing.
 *
 * The tool that checks the rows shares objects with the fuzz targets, which cost.c counts for. */
void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void) {}
