//go:build cgo && !js

#include "guard.h"

#include <stdlib.h>
#include <string.h>

// --- Instance and adapters -------------------------------------------------------------------------------------------

// GL is left out: it cannot run the kernels, and looking for it loads a display stack.
#define BACKENDS (WGPUInstanceBackend_Vulkan | WGPUInstanceBackend_Metal | WGPUInstanceBackend_DX12)

WGPUInstance pl_create_instance(void) {
    // All zero: flags that are left unset may turn validation layers on at random.
    WGPUInstanceExtras extras;
    memset(&extras, 0, sizeof extras);
    extras.chain.sType = WGPUSType_InstanceExtras;
    extras.backends = BACKENDS;
    WGPUInstanceDescriptor descriptor = {.nextInChain = &extras.chain};
    pl_error error = {0};
    WGPUInstance volatile instance = NULL;
    GUARDED(&error,
        wgpuSetLogLevel(WGPULogLevel_Off); // what it would log comes back as errors
        instance = wgpuCreateInstance(&descriptor););
    return error.type == PL_ERROR_NONE ? instance : NULL;
}

void pl_release_instance(WGPUInstance instance) {
    pl_error error = {0};
    GUARDED(&error, wgpuInstanceRelease(instance););
}

size_t pl_adapters(WGPUInstance instance, WGPUAdapter * adapters, size_t room) {
    pl_error error = {0};
    size_t volatile count = 0;
    GUARDED(&error,
        count = wgpuInstanceEnumerateAdapters(instance, NULL, NULL);
        WGPUAdapter * all = calloc(count + 1, sizeof *all);
        if (all == NULL) {
            count = 0;
        } else if (count > 0) {
            count = wgpuInstanceEnumerateAdapters(instance, NULL, all);
        }
        for (size_t i = 0; i < count; i++) {
            if (i < room) {
                adapters[i] = all[i];
            } else {
                wgpuAdapterRelease(all[i]);
            }
        }
        free(all););
    return error.type == PL_ERROR_NONE ? count : 0;
}

void pl_release_adapter(WGPUAdapter adapter) {
    pl_error error = {0};
    GUARDED(&error, wgpuAdapterRelease(adapter););
}

static void take(char * to, char const * from, size_t length) {
    size_t room = sizeof((pl_info *)0)->vendor - 1;
    if (from == NULL) {
        length = 0;
    } else if (length == SIZE_MAX) {
        length = strlen(from);
    }
    length = length < room ? length : room;
    if (length > 0) {
        memcpy(to, from, length);
    }
    to[length] = 0;
}

#if PL_WGPU == 29
#define TAKE(to, from) take(to, (from).data, (from).length)
#else
#define TAKE(to, from) take(to, from, SIZE_MAX)
#endif

static void describe(WGPUAdapter adapter, pl_info * info) {
#if PL_WGPU == 17
    WGPUAdapterProperties raw = {0};
    wgpuAdapterGetProperties(adapter, &raw);
    TAKE(info->vendor, raw.vendorName);
    TAKE(info->device, raw.name);
    TAKE(info->description, raw.driverDescription);
#else
    WGPUAdapterInfo raw = {0};
    wgpuAdapterGetInfo(adapter, &raw);
    TAKE(info->vendor, raw.vendor);
    TAKE(info->device, raw.device);
    TAKE(info->description, raw.description);
#endif
    TAKE(info->architecture, raw.architecture);
    info->vendor_id = raw.vendorID;
    info->device_id = raw.deviceID;
    info->type = raw.adapterType == WGPUAdapterType_DiscreteGPU ? PL_ADAPTER_DISCRETE
        : raw.adapterType == WGPUAdapterType_IntegratedGPU     ? PL_ADAPTER_INTEGRATED
        : raw.adapterType == WGPUAdapterType_CPU               ? PL_ADAPTER_CPU
                                                               : PL_ADAPTER_UNKNOWN;
    info->backend = raw.backendType == WGPUBackendType_Vulkan ? PL_BACKEND_VULKAN
        : raw.backendType == WGPUBackendType_Metal            ? PL_BACKEND_METAL
        : raw.backendType == WGPUBackendType_D3D12            ? PL_BACKEND_D3D12
                                                              : PL_BACKEND_OTHER;
#if PL_WGPU == 29
    wgpuAdapterInfoFreeMembers(raw);
#endif
}

void pl_adapter_info(WGPUAdapter adapter, pl_info * info) {
    memset(info, 0, sizeof *info);
    pl_error error = {0};
    GUARDED(&error, describe(adapter, info););
}

// --- The device ------------------------------------------------------------------------------------------------------

// Adapters report the largest number of a type for "no limit" (NVIDIA's buffer size), and asked for it means "undefined": the
// library would then give WebGPU's default.
static void bound32(uint32_t * n) { *n = *n < INT32_MAX ? *n : INT32_MAX; }
static void bound64(uint64_t * n) { *n = *n < INT64_MAX ? *n : INT64_MAX; }

static void bound(WGPULimits * l) {
    bound64(&l->maxBufferSize);
    bound64(&l->maxStorageBufferBindingSize);
    bound64(&l->maxUniformBufferBindingSize);
    bound32(&l->maxStorageBuffersPerShaderStage);
    bound32(&l->maxUniformBuffersPerShaderStage);
    bound32(&l->maxBindingsPerBindGroup);
    bound32(&l->maxComputeWorkgroupStorageSize);
    bound32(&l->maxComputeInvocationsPerWorkgroup);
    bound32(&l->maxComputeWorkgroupSizeX);
    bound32(&l->maxComputeWorkgroupSizeY);
    bound32(&l->maxComputeWorkgroupSizeZ);
    bound32(&l->maxComputeWorkgroupsPerDimension);
}

static void convert(WGPULimits const * l, pl_limits * to) {
    to->buffer = l->maxBufferSize;
    to->storage_binding = l->maxStorageBufferBindingSize;
    to->uniform_binding = l->maxUniformBufferBindingSize;
    to->storage_buffers = l->maxStorageBuffersPerShaderStage;
    to->workgroup_memory = l->maxComputeWorkgroupStorageSize;
    to->invocations = l->maxComputeInvocationsPerWorkgroup;
    to->workgroups_per_dim = l->maxComputeWorkgroupsPerDimension;
    to->offset_alignment = l->minStorageBufferOffsetAlignment > l->minUniformBufferOffsetAlignment
        ? l->minStorageBufferOffsetAlignment
        : l->minUniformBufferOffsetAlignment;
}

typedef struct opened {
    WGPUDevice device;
    pl_error * error;
} opened;

#if PL_WGPU == 29
static void on_device(WGPURequestDeviceStatus status, WGPUDevice device, WGPUStringView message, void * to, void * unused) {
    (void)unused;
    opened * o = to;
    if (status == WGPURequestDeviceStatus_Success) {
        o->device = device;
    } else {
        pl_fail(o->error, PL_ERROR_OTHER, message.data, message.length);
    }
}

static void on_lost(WGPUDevice const * device, WGPUDeviceLostReason reason, WGPUStringView message, void * to, void * unused) {
    (void)device;
    (void)reason;
    (void)message;
    (void)unused;
    ((pl_progress *)to)->lost = 1;
}

// Every call is inside error scopes, so nothing may come here. What does counts as if the library had given up.
static void on_stray(WGPUDevice const * device, WGPUErrorType type, WGPUStringView message, void * a, void * b) {
    (void)device;
    (void)type;
    (void)message;
    (void)a;
    (void)b;
    abort();
}
#else
static void on_device(WGPURequestDeviceStatus status, WGPUDevice device, char const * message, void * to) {
    opened * o = to;
    if (status == WGPURequestDeviceStatus_Success) {
        o->device = device;
    } else {
        message = message == NULL ? "the library does not say why" : message;
        pl_fail(o->error, PL_ERROR_OTHER, message, strlen(message));
    }
}
#endif

// wants lists the features to ask for and returns their number. f16 and subgroups are of use only where the library's compiler
// knows them.
static size_t wants(WGPUAdapter adapter, WGPUFeatureName * names, uint32_t * features) {
    static struct {
        int32_t name;
        uint32_t bit;
    } const known[] = {
        {WGPUFeatureName_TimestampQuery, PL_FEATURE_TIMESTAMPS},
#if PL_WGPU == 29
        {WGPUFeatureName_ShaderF16, PL_FEATURE_F16},
        {WGPUNativeFeature_Subgroup, PL_FEATURE_SUBGROUPS},
#endif
    };
    size_t count = 0;
    *features = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (wgpuAdapterHasFeature(adapter, known[i].name)) {
            names[count++] = known[i].name;
            *features |= known[i].bit;
        }
    }
    return count;
}

static void request(WGPUAdapter adapter, char const * label, int defaults, pl_limits * limits, uint32_t * features,
    pl_progress * progress, opened * o) {
    WGPUFeatureName names[8];
#if PL_WGPU == 29
    WGPULimits want;
    WGPULimits got = {0};
#define LIMITS(x) (x)
#else
    WGPURequiredLimits want;
    WGPUSupportedLimits got = {0};
#define LIMITS(x) ((x).limits)
#endif
    memset(&want, 0xFF, sizeof want); // "undefined" everywhere, which the library takes for WebGPU's defaults
    if (!defaults) {
        // All of the adapter's own: a field left 0 would ask for 0.
        wgpuAdapterGetLimits(adapter, &got);
        LIMITS(want) = LIMITS(got);
        bound(&LIMITS(want));
    }
    want.nextInChain = NULL;
    size_t count = wants(adapter, names, features);
    WGPUDeviceDescriptor descriptor = {.label = TEXT(label), .requiredFeatures = names, .requiredLimits = &want};
#if PL_WGPU == 17
    descriptor.requiredFeaturesCount = count;
#else
    descriptor.requiredFeatureCount = count;
#endif
#if PL_WGPU == 29
    want.maxImmediateSize = 0; // more needs a feature
    descriptor.deviceLostCallbackInfo.mode = WGPUCallbackMode_AllowSpontaneous;
    descriptor.deviceLostCallbackInfo.callback = on_lost;
    descriptor.deviceLostCallbackInfo.userdata1 = progress;
    descriptor.uncapturedErrorCallbackInfo.callback = on_stray;
    WGPURequestDeviceCallbackInfo info = {.mode = WGPUCallbackMode_AllowSpontaneous, .callback = on_device, .userdata1 = o};
    wgpuAdapterRequestDevice(adapter, &descriptor, info);
#else
    (void)progress;
    wgpuAdapterRequestDevice(adapter, &descriptor, on_device, o);
#endif
    if (o->device != NULL) {
        wgpuDeviceGetLimits(o->device, &got);
        convert(&LIMITS(got), limits);
    }
}

WGPUDevice pl_request_device(WGPUAdapter adapter, char const * label, int defaults, pl_limits * limits, uint32_t * features,
    pl_progress * progress, pl_error * error) {
    opened o = {NULL, error};
    GUARDED(error, request(adapter, label, defaults, limits, features, progress, &o););
    return error->type == PL_ERROR_NONE ? o.device : NULL;
}

WGPUQueue pl_queue(WGPUDevice device) { return wgpuDeviceGetQueue(device); }
