/* ulp_refs.h - references in long double that ulp.def names and libm lacks. */
#ifndef KILN_COMMAND_ULP_REFS_H
#define KILN_COMMAND_ULP_REFS_H
long double ulp_rsqrt(long double x);
long double ulp_sigmoid(long double x);
long double ulp_digamma(long double x);
long double ulp_zeta(long double s, long double q);
long double ulp_polygamma(long double n, long double x);
long double ulp_igamma(long double a, long double x);
long double ulp_igammac(long double a, long double x);
long double ulp_erfcx(long double x);
long double ulp_log_ndtr(long double x);
long double ulp_erfinv(long double x);
long double ulp_ndtri(long double p);
long double ulp_i0(long double x);
long double ulp_i0e(long double x);
long double ulp_i1(long double x);
long double ulp_i1e(long double x);
long double ulp_k0(long double x);
long double ulp_k1(long double x);
long double ulp_k0e(long double x);
long double ulp_k1e(long double x);
long double ulp_spherical_j0(long double x);
long double ulp_airy_ai(long double x);
long double ulp_chebyshev_t(long double x, long double n);
long double ulp_chebyshev_u(long double x, long double n);
long double ulp_chebyshev_v(long double x, long double n);
long double ulp_chebyshev_w(long double x, long double n);
long double ulp_hermite_h(long double x, long double n);
long double ulp_hermite_he(long double x, long double n);
long double ulp_laguerre_l(long double x, long double n);
long double ulp_legendre_p(long double x, long double n);
#endif
