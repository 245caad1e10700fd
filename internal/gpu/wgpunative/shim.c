//go:build cgo && !js

#include "shim.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#if !defined(_WIN32)
#include <pthread.h>
#include <setjmp.h>
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
#define GUARDED(error, ...) do { (void)(error); __VA_ARGS__ } while (0)
void pl_init(void) {}
#else

static __thread sigjmp_buf * guard;
static struct sigaction previous;

static void on_abort(int sig, siginfo_t * info, void * context) {
    sigjmp_buf * to = guard;
    if (to != NULL) {
        guard = NULL;
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

static void unblock_abort(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGABRT);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

// The mask is not saved (that would be a system call each time); unblock_abort restores the one bit that matters.
#define GUARDED(error, ...)                 \
    do {                                    \
        sigjmp_buf jump;                    \
        if (sigsetjmp(jump, 0) == 0) {      \
            guard = &jump;                  \
            __VA_ARGS__                     \
            guard = NULL;                   \
        } else {                            \
            unblock_abort();                \
            (error)->type = PL_ERROR_ABORT; \
        }                                   \
    } while (0)
#endif

// --- Errors ----------------------------------------------------------------------------------------------------------

// The first error of a call is its cause; those after it follow from it.
static void on_error(WGPUErrorType type, char const * message, void * userdata) {
    pl_error * error = userdata;
    if (type == WGPUErrorType_NoError || error->type != WGPUErrorType_NoError) {
        return;
    }
    size_t size = strlen(message) + 1;
    error->message = malloc(size);
    if (error->message != NULL) {
        memcpy(error->message, message, size);
    }
    error->type = type;
}

// An error that finds no scope of its kind makes wgpu-native panic.
static void push(WGPUDevice device) {
    wgpuDevicePushErrorScope(device, WGPUErrorFilter_OutOfMemory);
    wgpuDevicePushErrorScope(device, WGPUErrorFilter_Validation);
}

// Memory comes first: without it objects are invalid, which is what a validation error then says.
static void pop(WGPUDevice device, pl_error * error) {
    pl_error validation = {0};
    wgpuDevicePopErrorScope(device, on_error, &validation);
    wgpuDevicePopErrorScope(device, on_error, error);
    if (error->type == WGPUErrorType_NoError) {
        *error = validation;
    } else {
        free(validation.message);
    }
}

void pl_push_scopes(WGPUDevice device, pl_error * error) { GUARDED(error, push(device);); }

void pl_pop_scopes(WGPUDevice device, pl_error * error) { GUARDED(error, pop(device, error);); }

// --- Making things ---------------------------------------------------------------------------------------------------

WGPUInstance pl_create_instance(WGPUInstanceBackendFlags backends) {
    // All zero: cogentcore/webgpu leaves flags unset here, which may turn validation layers on at random.
    WGPUInstanceExtras extras = {0};
    extras.chain.sType = WGPUSType_InstanceExtras;
    extras.backends = backends;
    WGPUInstanceDescriptor descriptor = {&extras.chain};
    pl_error error = {0};
    WGPUInstance volatile instance = NULL;
    GUARDED(&error, instance = wgpuCreateInstance(&descriptor););
    return error.type == WGPUErrorType_NoError ? instance : NULL;
}

// CREATE runs the expression that makes an object, in scopes; an object that came with an error is released.
#define CREATE(Type, expression, release)                                \
    Type volatile made = NULL;                                           \
    GUARDED(error,                                                       \
        push(device);                                                    \
        made = (expression);                                             \
        pop(device, error);                                              \
        if (error->type != WGPUErrorType_NoError && made != NULL) {      \
            release(made);                                               \
            made = NULL;                                                 \
        });                                                              \
    return error->type == WGPUErrorType_NoError ? made : NULL

WGPUBuffer pl_create_buffer(WGPUDevice device, char const * label, uint32_t usage, uint64_t size, pl_error * error) {
    WGPUBufferDescriptor descriptor = {.label = label, .usage = usage, .size = size};
    CREATE(WGPUBuffer, wgpuDeviceCreateBuffer(device, &descriptor), wgpuBufferRelease);
}

WGPUBindGroupLayout pl_create_bind_group_layout(WGPUDevice device, int32_t const * types, size_t count, pl_error * error) {
    WGPUBindGroupLayoutEntry * entries = calloc(count + 1, sizeof *entries);
    if (entries == NULL) {
        error->type = WGPUErrorType_OutOfMemory;
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        entries[i].binding = (uint32_t)i;
        entries[i].visibility = WGPUShaderStage_Compute;
        entries[i].buffer.type = types[i];
    }
    WGPUBindGroupLayoutDescriptor descriptor = {.entryCount = count, .entries = entries};
    WGPUBindGroupLayout volatile made = NULL;
    GUARDED(error,
        push(device);
        made = wgpuDeviceCreateBindGroupLayout(device, &descriptor);
        pop(device, error);
        if (error->type != WGPUErrorType_NoError && made != NULL) {
            wgpuBindGroupLayoutRelease(made);
        });
    free(entries);
    return error->type == WGPUErrorType_NoError ? made : NULL;
}

WGPUPipelineLayout pl_create_pipeline_layout(WGPUDevice device, WGPUBindGroupLayout group, pl_error * error) {
    WGPUPipelineLayoutDescriptor descriptor = {.bindGroupLayoutCount = 1, .bindGroupLayouts = &group};
    CREATE(WGPUPipelineLayout, wgpuDeviceCreatePipelineLayout(device, &descriptor), wgpuPipelineLayoutRelease);
}

WGPUBindGroup pl_create_bind_group(WGPUDevice device, char const * label, WGPUBindGroupLayout layout,
    WGPUBuffer const * buffers, uint64_t const * offsets, uint64_t const * sizes, size_t count, pl_error * error) {
    WGPUBindGroupEntry * entries = calloc(count + 1, sizeof *entries);
    if (entries == NULL) {
        error->type = WGPUErrorType_OutOfMemory;
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        entries[i].binding = (uint32_t)i;
        entries[i].buffer = buffers[i];
        entries[i].offset = offsets[i];
        entries[i].size = sizes[i];
    }
    WGPUBindGroupDescriptor descriptor = {.label = label, .layout = layout, .entryCount = count, .entries = entries};
    WGPUBindGroup volatile made = NULL;
    GUARDED(error,
        push(device);
        made = wgpuDeviceCreateBindGroup(device, &descriptor);
        pop(device, error);
        if (error->type != WGPUErrorType_NoError && made != NULL) {
            wgpuBindGroupRelease(made);
        });
    free(entries);
    return error->type == WGPUErrorType_NoError ? made : NULL;
}

WGPUComputePipeline pl_create_pipeline(WGPUDevice device, char const * label, char const * code, char const * entry,
    WGPUPipelineLayout layout, int scoped, pl_error * error) {
    WGPUShaderModuleWGSLDescriptor wgsl = {.chain = {.sType = WGPUSType_ShaderModuleWGSLDescriptor}, .code = code};
    WGPUShaderModuleDescriptor source = {.nextInChain = &wgsl.chain, .label = label};
    WGPUComputePipelineDescriptor descriptor = {.label = label, .layout = layout, .compute = {.entryPoint = entry}};
    WGPUComputePipeline volatile made = NULL;
    GUARDED(error,
        if (scoped) {
            push(device);
        }
        WGPUShaderModule module = wgpuDeviceCreateShaderModule(device, &source);
        if (module != NULL) {
            descriptor.compute.module = module;
            made = wgpuDeviceCreateComputePipeline(device, &descriptor);
            wgpuShaderModuleRelease(module);
        }
        if (scoped) {
            pop(device, error);
        }
        if (error->type != WGPUErrorType_NoError && made != NULL) {
            wgpuComputePipelineRelease(made);
        });
    return error->type == WGPUErrorType_NoError ? made : NULL;
}

// --- Running ---------------------------------------------------------------------------------------------------------

void pl_write(WGPUDevice device, WGPUQueue queue, WGPUBuffer buffer, uint64_t offset, void const * data, size_t size,
    pl_error * error) {
    GUARDED(error,
        push(device);
        wgpuQueueWriteBuffer(queue, buffer, offset, data, size);
        pop(device, error););
}

static void end_pass(WGPUComputePassEncoder pass) {
    wgpuComputePassEncoderEnd(pass);
    wgpuComputePassEncoderRelease(pass);
}

// Consecutive dispatches share a pass, also across programs: a pass of its own costs a dispatch some 6 us.
static void record(WGPUCommandEncoder encoder, pl_program const * programs, size_t count) {
    WGPUComputePassEncoder pass = NULL;
    WGPUComputePipeline pipeline = NULL;
    WGPUBindGroup group = NULL;
    for (size_t p = 0; p < count; p++) {
        for (size_t i = 0; i < programs[p].count; i++) {
            pl_command const * c = &programs[p].commands[i];
            if (c->pipeline == NULL) {
                if (pass != NULL) {
                    end_pass(pass);
                    pass = NULL;
                }
                wgpuCommandEncoderCopyBufferToBuffer(encoder, c->src, c->src_offset, c->dst, c->dst_offset, c->size);
                continue;
            }
            if (pass == NULL) {
                pass = wgpuCommandEncoderBeginComputePass(encoder, NULL);
                pipeline = NULL;
                group = NULL;
            }
            if (c->pipeline != pipeline) {
                pipeline = c->pipeline;
                wgpuComputePassEncoderSetPipeline(pass, pipeline);
            }
            if (c->group != group) {
                group = c->group;
                wgpuComputePassEncoderSetBindGroup(pass, 0, group, 0, NULL);
            }
            wgpuComputePassEncoderDispatchWorkgroups(pass, c->x, c->y, c->z);
        }
    }
    if (pass != NULL) {
        end_pass(pass);
    }
}

void pl_submit(WGPUDevice device, WGPUQueue queue, pl_program const * programs, size_t count, pl_error * error) {
    if (count == 0) {
        GUARDED(error, wgpuQueueSubmitForIndex(queue, 0, NULL););
        return;
    }
    GUARDED(error,
        push(device);
        WGPUCommandEncoder encoder = wgpuDeviceCreateCommandEncoder(device, NULL);
        record(encoder, programs, count);
        WGPUCommandBuffer buffer = wgpuCommandEncoderFinish(encoder, NULL);
        pop(device, error);
        // A command buffer with an error would end the process when submitted.
        if (error->type == WGPUErrorType_NoError) {
            wgpuQueueSubmitForIndex(queue, 1, &buffer);
        }
        if (buffer != NULL) {
            wgpuCommandBufferRelease(buffer);
        }
        wgpuCommandEncoderRelease(encoder););
}

static void on_mapped(WGPUBufferMapAsyncStatus status, void * userdata) {
    pl_map * map = userdata;
    map->status = status;
    map->pending = 0;
}

void pl_map_start(WGPUDevice device, WGPUBuffer buffer, pl_map * map, size_t offset, size_t size, pl_error * error) {
    map->pending = 1;
    GUARDED(error,
        push(device);
        wgpuBufferMapAsync(buffer, WGPUMapMode_Read, offset, size, on_mapped, map);
        pop(device, error););
}

void pl_map_read(WGPUBuffer buffer, size_t offset, size_t size, size_t skip, void * dst, size_t count, pl_error * error) {
    GUARDED(error,
        char const * bytes = wgpuBufferGetConstMappedRange(buffer, offset, size);
        memcpy(dst, bytes + skip, count););
}

void pl_unmap(WGPUDevice device, WGPUBuffer buffer, pl_error * error) {
    GUARDED(error,
        push(device);
        wgpuBufferUnmap(buffer);
        pop(device, error););
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// A blocking poll is never used: after 5 s wgpu-core 0.19 takes the work for done, fires the map callbacks with success
// and shows memory that the GPU has not written yet. A poll that does not block reads the fence and cannot be wrong.
//
// A mapping is done when the last submission that used its buffer is; those that came after it may still run.
int pl_poll(WGPUDevice device, pl_map const * map, int all, int64_t spin_ns, int64_t budget_ns, int64_t waited_ns,
    pl_error * error) {
    int64_t start = now_ns();
    for (;;) {
        WGPUBool volatile idle = 0;
        GUARDED(error, idle = wgpuDevicePoll(device, 0, NULL););
        if (error->type != WGPUErrorType_NoError) {
            return 1;
        }
        if ((idle || !all) && (map == NULL || !map->pending)) {
            return 1;
        }
        int64_t spent = now_ns() - start;
        if (spent >= budget_ns) {
            return 0;
        }
        int64_t waited = waited_ns + spent;
        if (waited < spin_ns) {
            continue;
        }
        // A sixteenth of the wait so far keeps the delay small beside the wait itself.
        int64_t sleep = waited / 16;
        sleep = sleep < 20000 ? 20000 : sleep > 200000 ? 200000 : sleep;
        struct timespec t = {0, sleep};
        nanosleep(&t, NULL);
    }
}

// --- Releasing -------------------------------------------------------------------------------------------------------

// Destroy frees the memory as soon as submitted work no longer needs it; a release alone would keep it while any bind
// group still knows the buffer.
void pl_release_buffer(WGPUBuffer buffer, pl_error * error) {
    GUARDED(error,
        wgpuBufferDestroy(buffer);
        wgpuBufferRelease(buffer););
}

void pl_release_bind_group(WGPUBindGroup group, pl_error * error) { GUARDED(error, wgpuBindGroupRelease(group);); }

void pl_release_pipeline(WGPUComputePipeline pipeline, pl_error * error) {
    GUARDED(error, wgpuComputePipelineRelease(pipeline););
}

void pl_release_bind_group_layout(WGPUBindGroupLayout layout, pl_error * error) {
    GUARDED(error, wgpuBindGroupLayoutRelease(layout););
}

void pl_release_pipeline_layout(WGPUPipelineLayout layout, pl_error * error) {
    GUARDED(error, wgpuPipelineLayoutRelease(layout););
}

void pl_release_device(WGPUDevice device, WGPUQueue queue, pl_error * error) {
    GUARDED(error,
        wgpuQueueRelease(queue);
        wgpuDeviceRelease(device););
}
