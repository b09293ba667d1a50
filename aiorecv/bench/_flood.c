#include "_flood.h"
