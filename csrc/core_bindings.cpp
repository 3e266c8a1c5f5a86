#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "isa.h"
#include "thread_team.h"

namespace nb = nanobind;

namespace chairlift {

void bind_core(nb::module_& m) {
  m.def("available_isas", [] {
    std::vector<std::string> names;
    for (Isa isa : available_isas()) names.push_back(isa_name(isa));
    return names;
  });
  m.def("current_isa", [] { return std::string(isa_name(current_isa())); });

  nb::class_<ThreadTeam>(m, "ThreadTeam")
      .def(nb::init<int>(), nb::arg("num_threads"))
      .def_prop_ro("size", &ThreadTeam::size);
}

}  // namespace chairlift
