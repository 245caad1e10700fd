// Calls into wgpu-native as this package needs them: each one inside error scopes and inside the guard (see shim.c), and
// each one a single cgo call, however many commands it replays.

#ifndef PAGELIGHT_SHIM_H
#define PAGELIGHT_SHIM_H

#include "webgpu_decl.h"

// Beside the values of WGPUErrorType: the library tried to end the process during the call. What it locked stays locked,
// so the device must not be touched again.
enum { PL_ERROR_ABORT = 100 };

typedef struct pl_error {
    int32_t type;   // WGPUErrorType_NoError, another WGPUErrorType, or PL_ERROR_ABORT
    char * message; // from malloc, NULL when type is WGPUErrorType_NoError or PL_ERROR_ABORT
} pl_error;

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
    WGPUBufferMapAsyncStatus status;
} pl_map;

void pl_init(void);
WGPUInstance pl_create_instance(WGPUInstanceBackendFlags backends);

WGPUBuffer pl_create_buffer(WGPUDevice device, char const * label, uint32_t usage, uint64_t size, pl_error * error);
WGPUBindGroupLayout pl_create_bind_group_layout(WGPUDevice device, int32_t const * types, size_t count, pl_error * error);
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

void pl_map_start(WGPUDevice device, WGPUBuffer buffer, pl_map * map, size_t offset, size_t size, pl_error * error);
void pl_map_read(WGPUBuffer buffer, size_t offset, size_t size, size_t skip, void * dst, size_t count, pl_error * error);
void pl_unmap(WGPUDevice device, WGPUBuffer buffer, pl_error * error);

// Polls without blocking until map, if given, and, if all is not 0, everything submitted is done, for at most budget_ns. Returns
// 1 when done. For spin_ns it does so at once again and again, then it sleeps in between. waited_ns is what the caller waited
// before.
int pl_poll(WGPUDevice device, pl_map const * map, int all, int64_t spin_ns, int64_t budget_ns, int64_t waited_ns,
    pl_error * error);

void pl_release_buffer(WGPUBuffer buffer, pl_error * error);
void pl_release_bind_group(WGPUBindGroup group, pl_error * error);
void pl_release_pipeline(WGPUComputePipeline pipeline, pl_error * error);
void pl_release_bind_group_layout(WGPUBindGroupLayout layout, pl_error * error);
void pl_release_pipeline_layout(WGPUPipelineLayout layout, pl_error * error);
void pl_release_device(WGPUDevice device, WGPUQueue queue, pl_error * error);

#endif
