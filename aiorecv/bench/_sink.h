/* The C reference loops: what a receiver can reach on this machine. cffi parses this file. */
#pragma once
#include <stdint.h>
