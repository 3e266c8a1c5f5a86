#include "simd.h"

namespace chairlift::CHAIRLIFT_ISA {}
