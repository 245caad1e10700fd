//go:build cgo && !js

#include "guard.h"

#include <stdlib.h>
#include <string.h>

#if !defined(_WIN32)
#include <pthread.h>
#include <signal.h>
#endif

// --- The guard -------------------------------------------------------------------------------------------------------
//
// wgpu-native ends the process by abort() where its C interface has no way to say what went wrong: above all a submit or
// a poll on a lost device. POSIX lets a handler of SIGABRT leave by a jump, and abort() then does not end the process. So
// a call that aborts becomes an error, after which the device counts as lost and is never called again (locks that the
// call held stay held; they belong to this device's instance alone). Aborts elsewhere go to the handler that was there
// before, which is Go's. (A program that asks os/signal for SIGABRT takes the guard away again.)

#if defined(_WIN32)
void pl_init(void) {}
#else

__thread sigjmp_buf * pl_guard;
static struct sigaction previous;

static void on_abort(int sig, siginfo_t * info, void * context) {
    sigjmp_buf * to = pl_guard;
    if (to != NULL) {
        pl_guard = NULL;
        siglongjmp(*to, 1);
    }
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(sig, info, context);
    } else if (previous.sa_handler != SIG_IGN && previous.sa_handler != SIG_DFL) {
        previous.sa_handler(sig);
    }
    // abort() ends the process by itself when a handler returns.
}

static void install(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_abort;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART; // Go asks for these of every handler
    sigemptyset(&action.sa_mask);
    sigaction(SIGABRT, &action, &previous);
}

void pl_init(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
}

void pl_unblock_abort(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGABRT);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}
#endif

// --- Errors ----------------------------------------------------------------------------------------------------------

// The first error of a call is its cause; those after it follow from it.
void pl_fail(pl_error * error, int32_t type, char const * message, size_t length) {
    if (error->type != PL_ERROR_NONE) {
        return;
    }
    error->message = malloc(length + 1);
    if (error->message != NULL) {
        memcpy(error->message, message, length);
        error->message[length] = 0;
    }
    error->type = type;
}

static int32_t ours(WGPUErrorType type) {
    switch (type) {
    case WGPUErrorType_NoError: return PL_ERROR_NONE;
    case WGPUErrorType_Validation: return PL_ERROR_VALIDATION;
    case WGPUErrorType_OutOfMemory: return PL_ERROR_OUT_OF_MEMORY;
#if PL_WGPU != 29
    case WGPUErrorType_DeviceLost: return PL_ERROR_LOST;
#endif
    default: return PL_ERROR_OTHER;
    }
}

#if PL_WGPU == 29
static void on_error(WGPUPopErrorScopeStatus status, WGPUErrorType type, WGPUStringView message, void * to, void * unused) {
    (void)status;
    (void)unused;
    if (type != WGPUErrorType_NoError) {
        pl_fail(to, ours(type), message.data, message.length == SIZE_MAX ? strlen(message.data) : message.length);
    }
}

static void pop_into(WGPUDevice device, pl_error * error) {
    WGPUPopErrorScopeCallbackInfo info = {.mode = WGPUCallbackMode_AllowSpontaneous, .callback = on_error, .userdata1 = error};
    wgpuDevicePopErrorScope(device, info);
}
#else
static void on_error(WGPUErrorType type, char const * message, void * to) {
    if (type != WGPUErrorType_NoError) {
        pl_fail(to, ours(type), message, strlen(message));
    }
}

static void pop_into(WGPUDevice device, pl_error * error) { wgpuDevicePopErrorScope(device, on_error, error); }
#endif

// An error that finds no scope of its kind makes wgpu-native panic.
void pl_push(WGPUDevice device) {
    wgpuDevicePushErrorScope(device, WGPUErrorFilter_OutOfMemory);
    wgpuDevicePushErrorScope(device, WGPUErrorFilter_Validation);
}

// Memory comes first: without it objects are invalid, which is what a validation error then says.
void pl_pop(WGPUDevice device, pl_error * error) {
    pl_error validation = {0};
    pop_into(device, &validation);
    pop_into(device, error);
    if (error->type == PL_ERROR_NONE) {
        *error = validation;
    } else {
        free(validation.message);
    }
}

void pl_push_scopes(WGPUDevice device, pl_error * error) { GUARDED(error, pl_push(device);); }

void pl_pop_scopes(WGPUDevice device, pl_error * error) { GUARDED(error, pl_pop(device, error);); }
