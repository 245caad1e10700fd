// Calls into wgpu-native as this package needs them: each one inside error scopes and inside the guard (see shim.c), and
// each one a single cgo call, however many commands it replays.

#ifndef PAGELIGHT_SHIM_H
#define PAGELIGHT_SHIM_H

#if PL_WGPU == 17
#include "decl17.h"
#elif PL_WGPU == 29
#include "decl29.h"
#else
#include "decl19.h"
#endif

enum {
    PL_ERROR_NONE,
    PL_ERROR_VALIDATION,
    PL_ERROR_OUT_OF_MEMORY,
    PL_ERROR_LOST,
    PL_ERROR_OTHER,
    // The library tried to end the process during the call. What it locked stays locked, so the device must not be touched again.
    PL_ERROR_ABORT,
};

typedef struct pl_error {
    int32_t type;
    char * message; // from malloc; NULL when type is PL_ERROR_NONE or PL_ERROR_ABORT
} pl_error;

// What Go knows of an adapter. The names are as the library gives them, cut off at the size.
typedef struct pl_info {
    char vendor[128], architecture[128], device[128], description[128];
    uint32_t vendor_id, device_id;
    int32_t type;    // PL_ADAPTER_*
    int32_t backend; // PL_BACKEND_*
} pl_info;

enum { PL_ADAPTER_DISCRETE, PL_ADAPTER_INTEGRATED, PL_ADAPTER_CPU, PL_ADAPTER_UNKNOWN };
enum { PL_BACKEND_OTHER, PL_BACKEND_VULKAN, PL_BACKEND_METAL, PL_BACKEND_D3D12 };
enum { PL_FEATURE_TIMESTAMPS = 1, PL_FEATURE_SUBGROUPS = 2, PL_FEATURE_F16 = 4 };

// Beside the values of gpu.Usage: what pl_profile needs.
enum { PL_USAGE_RESOLVE = 1 << 5 };

// The limits of a device, as gpu.Limits has them.
typedef struct pl_limits {
    uint64_t buffer, storage_binding, uniform_binding;
    uint32_t storage_buffers, workgroup_memory, invocations, workgroups_per_dim, offset_alignment;
} pl_limits;

// One element of a program: a dispatch when pipeline is set, else a copy.
typedef struct pl_command {
    WGPUComputePipeline pipeline;
    WGPUBindGroup group;
    uint32_t x, y, z;
    WGPUBuffer src, dst;
    uint64_t src_offset, dst_offset, size;
} pl_command;

typedef struct pl_program {
    pl_command const * commands;
    size_t count;
} pl_program;

// The state of one mapping. It lives in C memory since the library writes it from inside a poll, whenever that is.
typedef struct pl_map {
    int32_t pending;
    int32_t status; // 0, or what the library says of a mapping that failed
} pl_map;

// How far the GPU is. The library writes it from inside a poll or a submit, whenever that is, so it lives as long as the process.
typedef struct pl_progress {
    uint64_t set;    // marks set so far
    uint64_t passed; // marks that the GPU has passed; it passes them in order
    int32_t lost;    // not 0 when the library has said that the device is lost
} pl_progress;

void pl_init(void);
WGPUInstance pl_create_instance(void);
void pl_release_instance(WGPUInstance instance);

// Writes at most room adapters to adapters, which the caller releases, and returns how many there are.
size_t pl_adapters(WGPUInstance instance, WGPUAdapter * adapters, size_t room);
void pl_adapter_info(WGPUAdapter adapter, pl_info * info);
void pl_release_adapter(WGPUAdapter adapter);

// Opens a device with all that the adapter has, or, if defaults is not 0, with the limits that WebGPU guarantees.
WGPUDevice pl_request_device(WGPUAdapter adapter, char const * label, int defaults, pl_limits * limits, uint32_t * features,
    pl_progress * progress, pl_error * error);

WGPUBuffer pl_create_buffer(WGPUDevice device, char const * label, uint32_t usage, uint64_t size, pl_error * error);
// kinds are gpu.BindingKind.
WGPUBindGroupLayout pl_create_bind_group_layout(WGPUDevice device, uint8_t const * kinds, size_t count, pl_error * error);
WGPUPipelineLayout pl_create_pipeline_layout(WGPUDevice device, WGPUBindGroupLayout group, pl_error * error);
WGPUBindGroup pl_create_bind_group(WGPUDevice device, char const * label, WGPUBindGroupLayout layout,
    WGPUBuffer const * buffers, uint64_t const * offsets, uint64_t const * sizes, size_t count, pl_error * error);
WGPUComputePipeline pl_create_pipeline(WGPUDevice device, char const * label, char const * code, char const * entry,
    WGPUPipelineLayout layout, int scoped, pl_error * error);

// Error scopes around several calls of pl_create_pipeline with scoped = 0, which may then run on several threads.
void pl_push_scopes(WGPUDevice device, pl_error * error);
void pl_pop_scopes(WGPUDevice device, pl_error * error);

void pl_write(WGPUDevice device, WGPUQueue queue, WGPUBuffer buffer, uint64_t offset, void const * data, size_t size,
    pl_error * error);
void pl_submit(WGPUDevice device, WGPUQueue queue, pl_program const * programs, size_t count, pl_error * error);

// Submits commands, each dispatch in a pass of its own between the timestamps 2i and 2i+1 of set, and copies these to out by way of
// resolved.
WGPUQuerySet pl_create_query_set(WGPUDevice device, uint32_t count, pl_error * error);
void pl_profile(WGPUDevice device, WGPUQueue queue, pl_command const * commands, size_t count, WGPUQuerySet set,
    WGPUBuffer resolved, WGPUBuffer out, pl_error * error);
// The nanoseconds of one unit of a timestamp, or 0 where the library does not say.
float pl_timestamp_period(WGPUQueue queue);

void pl_map_start(WGPUDevice device, WGPUBuffer buffer, pl_map * map, size_t offset, size_t size, pl_error * error);
void pl_map_read(WGPUBuffer buffer, size_t offset, size_t size, size_t skip, void * dst, size_t count, pl_error * error);
void pl_unmap(WGPUDevice device, WGPUBuffer buffer, pl_error * error);

// Returns the number of a mark behind everything submitted so far.
uint64_t pl_mark(WGPUQueue queue, pl_progress * progress, pl_error * error);

// Polls without blocking until map, if given, is done and the GPU has passed the mark, for at most budget_ns. Returns 1 when done. For
// spin_ns it does so at once again and again, then it sleeps in between. waited_ns is what the caller waited before.
int pl_poll(WGPUDevice device, pl_progress const * progress, uint64_t mark, pl_map const * map, int64_t spin_ns, int64_t budget_ns,
    int64_t waited_ns, pl_error * error);

void pl_release_buffer(WGPUBuffer buffer, pl_error * error);
void pl_release_bind_group(WGPUBindGroup group, pl_error * error);
void pl_release_query_set(WGPUQuerySet set, pl_error * error);
void pl_release_pipeline(WGPUComputePipeline pipeline, pl_error * error);
void pl_release_bind_group_layout(WGPUBindGroupLayout layout, pl_error * error);
void pl_release_pipeline_layout(WGPUPipelineLayout layout, pl_error * error);
WGPUQueue pl_queue(WGPUDevice device);
void pl_release_device(WGPUDevice device, WGPUQueue queue, pl_error * error);

#endif
