/* sanitized.h - whether a test is built for sanitizers.  They look at accesses and races, of which a few rounds show as
 * much as many, and every round takes them several times as long. */
#ifndef KILN_TEST_SANITIZED_H
#define KILN_TEST_SANITIZED_H
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#define TSAN __has_feature(thread_sanitizer)
#if TSAN || __has_feature(address_sanitizer)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif
#endif
