// What a CPU build of torch lacks to believe in a CUDA device: a device guard, which autograd asks for streams (there is
// one), hooks that say a card is there, and "pinned" memory: ordinary memory of which is known that it was asked for so.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdlib>
#include <map>
#include <mutex>

namespace {
c10::Device card() { return c10::Device(c10::DeviceType::CUDA, 0); }
c10::Stream stream() { return c10::Stream(c10::Stream::DEFAULT, card()); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  c10::Device exchangeDevice(c10::Device) const override { return card(); }
  c10::Device getDevice() const override { return card(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return stream(); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(); }
  c10::Stream exchangeStream(c10::Stream) const override { return stream(); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
};

std::mutex lock;
std::map<const char*, size_t> pinned;

void give_back(void* memory) {
  std::lock_guard<std::mutex> held(lock);
  pinned.erase(static_cast<char*>(memory));
  std::free(memory);
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = std::aligned_alloc(64, (bytes / 64 + 1) * 64);
    std::lock_guard<std::mutex> held(lock);
    pinned[static_cast<char*>(memory)] = bytes;
    return {memory, memory, &give_back, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

struct Hooks final : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex current_device() const override { return 0; }
  int getNumGPUs() const override { return 1; }
  bool isPinnedPtr(const void* data) const override {
    std::lock_guard<std::mutex> held(lock);
    auto after = pinned.upper_bound(static_cast<const char*>(data));
    if (after == pinned.begin()) return false;
    auto found = std::prev(after);
    return static_cast<const char*>(data) <= found->first + found->second;
  }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    static PinnedAllocator allocator;
    return &allocator;
  }
};

const Guard guard;
const c10::impl::DeviceGuardImplRegistrar registrar(c10::DeviceType::CUDA, &guard);
} // namespace

namespace at {
using StandInHooks = ::Hooks;
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, StandInHooks)
} // namespace at
