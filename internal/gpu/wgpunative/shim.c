//go:build cgo && !js

#include "guard.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

// --- Making things ---------------------------------------------------------------------------------------------------

// CREATE runs the expression that makes an object, in scopes; an object that came with an error is released.
#define CREATE(Type, expression, release)                                \
    Type volatile made = NULL;                                           \
    GUARDED(error,                                                       \
        pl_push(device);                                                 \
        made = (expression);                                             \
        pl_pop(device, error);                                              \
        if (error->type != PL_ERROR_NONE && made != NULL) {      \
            release(made);                                               \
            made = NULL;                                                 \
        });                                                              \
    return error->type == PL_ERROR_NONE ? made : NULL

static uint32_t native_usage(uint32_t usage) {
    static uint32_t const native[] = {WGPUBufferUsage_Storage, WGPUBufferUsage_Uniform, WGPUBufferUsage_CopySrc,
        WGPUBufferUsage_CopyDst, WGPUBufferUsage_MapRead, WGPUBufferUsage_QueryResolve};
    uint32_t all = 0;
    for (size_t i = 0; i < sizeof native / sizeof *native; i++) {
        if (usage >> i & 1) {
            all |= native[i];
        }
    }
    return all;
}

WGPUBuffer pl_create_buffer(WGPUDevice device, char const * label, uint32_t usage, uint64_t size, pl_error * error) {
    WGPUBufferDescriptor descriptor = {.label = TEXT(label), .usage = native_usage(usage), .size = size};
    CREATE(WGPUBuffer, wgpuDeviceCreateBuffer(device, &descriptor), wgpuBufferRelease);
}

WGPUBindGroupLayout pl_create_bind_group_layout(WGPUDevice device, uint8_t const * kinds, size_t count, pl_error * error) {
    static int32_t const types[] = {WGPUBufferBindingType_Uniform, WGPUBufferBindingType_ReadOnlyStorage,
        WGPUBufferBindingType_Storage};
    WGPUBindGroupLayoutEntry * entries = calloc(count + 1, sizeof *entries);
    if (entries == NULL) {
        error->type = PL_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        entries[i].binding = (uint32_t)i;
        entries[i].visibility = WGPUShaderStage_Compute;
        entries[i].buffer.type = types[kinds[i]];
    }
    WGPUBindGroupLayoutDescriptor descriptor = {.entryCount = count, .entries = entries};
    WGPUBindGroupLayout volatile made = NULL;
    GUARDED(error,
        pl_push(device);
        made = wgpuDeviceCreateBindGroupLayout(device, &descriptor);
        pl_pop(device, error);
        if (error->type != PL_ERROR_NONE && made != NULL) {
            wgpuBindGroupLayoutRelease(made);
        });
    free(entries);
    return error->type == PL_ERROR_NONE ? made : NULL;
}

WGPUPipelineLayout pl_create_pipeline_layout(WGPUDevice device, WGPUBindGroupLayout group, pl_error * error) {
    WGPUPipelineLayoutDescriptor descriptor = {.bindGroupLayoutCount = 1, .bindGroupLayouts = &group};
    CREATE(WGPUPipelineLayout, wgpuDeviceCreatePipelineLayout(device, &descriptor), wgpuPipelineLayoutRelease);
}

WGPUBindGroup pl_create_bind_group(WGPUDevice device, char const * label, WGPUBindGroupLayout layout,
    WGPUBuffer const * buffers, uint64_t const * offsets, uint64_t const * sizes, size_t count, pl_error * error) {
    WGPUBindGroupEntry * entries = calloc(count + 1, sizeof *entries);
    if (entries == NULL) {
        error->type = PL_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        entries[i].binding = (uint32_t)i;
        entries[i].buffer = buffers[i];
        entries[i].offset = offsets[i];
        entries[i].size = sizes[i];
    }
    WGPUBindGroupDescriptor descriptor = {.label = TEXT(label), .layout = layout, .entryCount = count, .entries = entries};
    WGPUBindGroup volatile made = NULL;
    GUARDED(error,
        pl_push(device);
        made = wgpuDeviceCreateBindGroup(device, &descriptor);
        pl_pop(device, error);
        if (error->type != PL_ERROR_NONE && made != NULL) {
            wgpuBindGroupRelease(made);
        });
    free(entries);
    return error->type == PL_ERROR_NONE ? made : NULL;
}

WGPUComputePipeline pl_create_pipeline(WGPUDevice device, char const * label, char const * code, char const * entry,
    WGPUPipelineLayout layout, int scoped, pl_error * error) {
#if PL_WGPU == 29
    WGPUShaderSourceWGSL wgsl = {.chain = {.sType = WGPUSType_ShaderSourceWGSL}, .code = TEXT(code)};
#else
    WGPUShaderModuleWGSLDescriptor wgsl = {.chain = {.sType = WGPUSType_ShaderModuleWGSLDescriptor}, .code = code};
#endif
    WGPUShaderModuleDescriptor source = {.nextInChain = &wgsl.chain, .label = TEXT(label)};
    WGPUComputePipelineDescriptor descriptor = {.label = TEXT(label), .layout = layout, .compute = {.entryPoint = TEXT(entry)}};
    WGPUComputePipeline volatile made = NULL;
    GUARDED(error,
        if (scoped) {
            pl_push(device);
        }
        WGPUShaderModule module = wgpuDeviceCreateShaderModule(device, &source);
        if (module != NULL) {
            descriptor.compute.module = module;
            made = wgpuDeviceCreateComputePipeline(device, &descriptor);
            wgpuShaderModuleRelease(module);
        }
        if (scoped) {
            pl_pop(device, error);
        }
        if (error->type != PL_ERROR_NONE && made != NULL) {
            wgpuComputePipelineRelease(made);
        });
    return error->type == PL_ERROR_NONE ? made : NULL;
}

// --- Running ---------------------------------------------------------------------------------------------------------

void pl_write(WGPUDevice device, WGPUQueue queue, WGPUBuffer buffer, uint64_t offset, void const * data, size_t size,
    pl_error * error) {
    GUARDED(error,
        pl_push(device);
        wgpuQueueWriteBuffer(queue, buffer, offset, data, size);
        pl_pop(device, error););
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
        pl_push(device);
        WGPUCommandEncoder encoder = wgpuDeviceCreateCommandEncoder(device, NULL);
        record(encoder, programs, count);
        WGPUCommandBuffer buffer = wgpuCommandEncoderFinish(encoder, NULL);
        pl_pop(device, error);
        // A command buffer with an error would end the process when submitted.
        if (error->type == PL_ERROR_NONE) {
            wgpuQueueSubmitForIndex(queue, 1, &buffer);
        }
        if (buffer != NULL) {
            wgpuCommandBufferRelease(buffer);
        }
        wgpuCommandEncoderRelease(encoder););
}

WGPUQuerySet pl_create_query_set(WGPUDevice device, uint32_t count, pl_error * error) {
    WGPUQuerySetDescriptor descriptor = {.type = WGPUQueryType_Timestamp, .count = count};
    CREATE(WGPUQuerySet, wgpuDeviceCreateQuerySet(device, &descriptor), wgpuQuerySetRelease);
}

// timed records one dispatch in a pass of its own between two timestamps.
static void timed(WGPUCommandEncoder encoder, pl_command const * c, WGPUQuerySet set, uint32_t first) {
#if PL_WGPU == 29
    WGPUPassTimestampWrites writes = {.querySet = set, .beginningOfPassWriteIndex = first, .endOfPassWriteIndex = first + 1};
    WGPUComputePassDescriptor descriptor = {.timestampWrites = &writes};
    WGPUComputePassEncoder pass = wgpuCommandEncoderBeginComputePass(encoder, &descriptor);
#else
    wgpuCommandEncoderWriteTimestamp(encoder, set, first);
    WGPUComputePassEncoder pass = wgpuCommandEncoderBeginComputePass(encoder, NULL);
#endif
    wgpuComputePassEncoderSetPipeline(pass, c->pipeline);
    wgpuComputePassEncoderSetBindGroup(pass, 0, c->group, 0, NULL);
    wgpuComputePassEncoderDispatchWorkgroups(pass, c->x, c->y, c->z);
    end_pass(pass);
#if PL_WGPU != 29
    wgpuCommandEncoderWriteTimestamp(encoder, set, first + 1);
#endif
}

void pl_profile(WGPUDevice device, WGPUQueue queue, pl_command const * commands, size_t count, WGPUQuerySet set,
    WGPUBuffer resolved, WGPUBuffer out, pl_error * error) {
    GUARDED(error,
        pl_push(device);
        WGPUCommandEncoder encoder = wgpuDeviceCreateCommandEncoder(device, NULL);
        uint32_t queries = 0;
        for (size_t i = 0; i < count; i++) {
            pl_command const * c = &commands[i];
            if (c->pipeline != NULL) {
                timed(encoder, c, set, queries);
                queries += 2;
            } else {
                wgpuCommandEncoderCopyBufferToBuffer(encoder, c->src, c->src_offset, c->dst, c->dst_offset, c->size);
            }
        }
        if (queries > 0) {
            wgpuCommandEncoderResolveQuerySet(encoder, set, 0, queries, resolved, 0);
            wgpuCommandEncoderCopyBufferToBuffer(encoder, resolved, 0, out, 0, 8 * (uint64_t)queries);
        }
        WGPUCommandBuffer buffer = wgpuCommandEncoderFinish(encoder, NULL);
        pl_pop(device, error);
        if (error->type == PL_ERROR_NONE) {
            wgpuQueueSubmitForIndex(queue, 1, &buffer);
        }
        if (buffer != NULL) {
            wgpuCommandBufferRelease(buffer);
        }
        wgpuCommandEncoderRelease(encoder););
}

float pl_timestamp_period(WGPUQueue queue) {
#if PL_WGPU == 29
    return wgpuQueueGetTimestampPeriod(queue);
#else
    (void)queue;
    return 0;
#endif
}

#if PL_WGPU == 29
static void on_mapped(WGPUMapAsyncStatus status, WGPUStringView message, void * to, void * unused) {
    (void)message;
    (void)unused;
    pl_map * map = to;
    map->status = status == WGPUMapAsyncStatus_Success ? 0 : status;
    map->pending = 0;
}

static void map_async(WGPUBuffer buffer, pl_map * map, size_t offset, size_t size) {
    WGPUBufferMapCallbackInfo info = {.mode = WGPUCallbackMode_AllowSpontaneous, .callback = on_mapped, .userdata1 = map};
    wgpuBufferMapAsync(buffer, WGPUMapMode_Read, offset, size, info);
}
#else
static void on_mapped(WGPUBufferMapAsyncStatus status, void * to) {
    pl_map * map = to;
    map->status = status;
    map->pending = 0;
}

static void map_async(WGPUBuffer buffer, pl_map * map, size_t offset, size_t size) {
    wgpuBufferMapAsync(buffer, WGPUMapMode_Read, offset, size, on_mapped, map);
}
#endif

void pl_map_start(WGPUDevice device, WGPUBuffer buffer, pl_map * map, size_t offset, size_t size, pl_error * error) {
    map->pending = 1;
    GUARDED(error,
        pl_push(device);
        map_async(buffer, map, offset, size);
        pl_pop(device, error););
}

void pl_map_read(WGPUBuffer buffer, size_t offset, size_t size, size_t skip, void * dst, size_t count, pl_error * error) {
    GUARDED(error,
        char const * bytes = wgpuBufferGetConstMappedRange(buffer, offset, size);
        memcpy(dst, bytes + skip, count););
}

void pl_unmap(WGPUDevice device, WGPUBuffer buffer, pl_error * error) {
    GUARDED(error,
        pl_push(device);
        wgpuBufferUnmap(buffer);
        pl_pop(device, error););
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#if PL_WGPU == 29
static void on_done(WGPUQueueWorkDoneStatus status, WGPUStringView message, void * to, void * unused) {
    (void)message;
    (void)unused;
#else
static void on_done(WGPUQueueWorkDoneStatus status, void * to) {
#endif
    pl_progress * progress = to;
    progress->passed++;
    if (status != WGPUQueueWorkDoneStatus_Success) {
        progress->lost = 1;
    }
}

uint64_t pl_mark(WGPUQueue queue, pl_progress * progress, pl_error * error) {
    uint64_t mark = ++progress->set;
#if PL_WGPU == 29
    WGPUQueueWorkDoneCallbackInfo info = {
        .mode = WGPUCallbackMode_AllowSpontaneous, .callback = on_done, .userdata1 = progress};
    GUARDED(error, wgpuQueueOnSubmittedWorkDone(queue, info););
#else
    GUARDED(error, wgpuQueueOnSubmittedWorkDone(queue, on_done, progress););
#endif
    return mark;
}

// A blocking poll is never used: after 5 s wgpu-core 0.19 takes the work for done, fires the map callbacks with success
// and shows memory that the GPU has not written yet. A poll that does not block reads the fence and cannot be wrong.
//
// Two more things are not to be trusted. In wgpu 29 what a poll returns does not say whether the queue is empty. And a mapping that
// was given up is not forgotten: when the submission is done that it waited for, a later mapping of the same buffer counts as done,
// although that should wait for a later submission. Marks are passed when they should be.
int pl_poll(WGPUDevice device, pl_progress const * progress, uint64_t mark, pl_map const * map, int64_t spin_ns, int64_t budget_ns,
    int64_t waited_ns, pl_error * error) {
    int64_t start = now_ns();
    for (;;) {
        if (progress->passed >= mark && (map == NULL || !map->pending)) {
            return 1;
        }
        GUARDED(error, wgpuDevicePoll(device, 0, NULL););
        if (error->type == PL_ERROR_NONE && progress->lost) {
            pl_fail(error, PL_ERROR_LOST, "lost while waiting", 18);
        }
        if (error->type != PL_ERROR_NONE) {
            return 1;
        }
        if (progress->passed >= mark && (map == NULL || !map->pending)) {
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

void pl_release_query_set(WGPUQuerySet set, pl_error * error) { GUARDED(error, wgpuQuerySetRelease(set);); }

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
