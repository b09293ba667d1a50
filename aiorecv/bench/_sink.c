#include "_sink.h"
