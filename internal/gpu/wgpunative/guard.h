// How calls into wgpu-native are kept from ending the process (see guard.c). Each call of the library is inside GUARDED, whose
// first argument is a pl_error *.

#ifndef PAGELIGHT_GUARD_H
#define PAGELIGHT_GUARD_H

#include "shim.h"

#if defined(_WIN32)
#define GUARDED(error, ...) do { (void)(error); __VA_ARGS__ } while (0)
#else
#include <setjmp.h>

extern __thread sigjmp_buf * pl_guard;
void pl_unblock_abort(void);

// The mask is not saved (that would be a system call each time); pl_unblock_abort restores the one bit that matters.
#define GUARDED(error, ...)                 \
    do {                                    \
        sigjmp_buf jump;                    \
        if (sigsetjmp(jump, 0) == 0) {      \
            pl_guard = &jump;               \
            __VA_ARGS__                     \
            pl_guard = NULL;                \
        } else {                            \
            pl_unblock_abort();             \
            (error)->type = PL_ERROR_ABORT; \
        }                                   \
    } while (0)
#endif

// A string as the library takes it.
#if PL_WGPU == 29
#define TEXT(s) ((WGPUStringView){(s), SIZE_MAX})
#else
#define TEXT(s) (s)
#endif

// Error scopes around calls of the library, and their first error.
void pl_push(WGPUDevice device);
void pl_pop(WGPUDevice device, pl_error * error);

// Puts an error with a copy of message into error, unless that has one.
void pl_fail(pl_error * error, int32_t type, char const * message, size_t length);

#endif
