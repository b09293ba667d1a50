/* The flooder: a sender that keeps a socket busy. cffi parses this file. */
#pragma once
#include <stdint.h>
