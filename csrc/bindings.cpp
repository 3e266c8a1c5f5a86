// The extension module chairlift._native: each part registers its own functions.
#include <nanobind/nanobind.h>

namespace chairlift {
void bind_core(nanobind::module_& m);
void bind_linear(nanobind::module_& m);
void bind_model(nanobind::module_& m);
void bind_attention(nanobind::module_& m);
void bind_dequant(nanobind::module_& m);
void bind_sampler(nanobind::module_& m);
void bind_strings(nanobind::module_& m);
}  // namespace chairlift

NB_MODULE(_native, m) {
  // An interpreter that ends with a model loaded, as a stopped server's does, is no leak.
  nanobind::set_leak_warnings(false);
  m.doc() = "Chairlift's C++ kernels; use them through chairlift.kernels.";
  chairlift::bind_core(m);
  chairlift::bind_linear(m);
  chairlift::bind_model(m);
  chairlift::bind_attention(m);
  chairlift::bind_dequant(m);
  chairlift::bind_sampler(m);
  chairlift::bind_strings(m);
}
