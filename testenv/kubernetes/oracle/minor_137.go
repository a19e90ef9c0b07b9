//go:build k137

package main

import (
	"context"
	cadvisorapi "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/allocation"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/kubeletconfig/util/codec"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	"k8s.io/kubernetes/pkg/kubelet/nodestatus"
	"k8s.io/utils/cpuset"
	_ "unsafe" // for linkname
)

// How 1.37 spells the calls.

type machineInfo = cadvisorapi.MachineInfo

//go:linkname newManagerImpl k8s.io/kubernetes/pkg/kubelet/cm/devicemanager.newManagerImpl
func newManagerImpl(logger klog.Logger, socket string, topology []cadvisorapi.Node,
	store topologymanager.Store) (*devicemanager.ManagerImpl, error)

//go:linkname getReservedCPUs k8s.io/kubernetes/cmd/kubelet/app.getReservedCPUs
func getReservedCPUs(logger klog.Logger, machine *cadvisorapi.MachineInfo, cpus string) (cpuset.CPUSet, error)

func reservedSystemCPUs(machine *machineInfo, cpus string) (cpuset.CPUSet, error) {
	return getReservedCPUs(silent, machine, cpus)
}

func decodeConfig(data []byte) (*kubeletconfig.KubeletConfiguration, error) {
	return codec.DecodeKubeletConfiguration(background, codecs, data)
}

func newTopologyManager(k *kubelet) (topologymanager.Manager, error) {
	return topologymanager.NewManager(silent, k.machine.Topology, k.settings.TopologyManagerPolicy,
		k.settings.TopologyManagerScope, k.settings.TopologyManagerPolicyOptions)
}

func newDeviceManager(socket string, k *kubelet) (*devicemanager.ManagerImpl, error) {
	return newManagerImpl(silent, socket, k.machine.Topology, k.topology)
}

func newCPUManager(k *kubelet) (cpumanager.Manager, error) {
	return cpumanager.NewManager(silent, k.settings.CPUManagerPolicy, k.settings.CPUManagerPolicyOptions,
		k.settings.CPUManagerReconcilePeriod, k.machine, k.settings.ReservedSystemCPUs, k.reservation(),
		k.settings.KubeletRootDir, k.topology)
}

func newMemoryManager(k *kubelet) (memorymanager.Manager, error) {
	return memorymanager.NewManager(silent, k.settings.MemoryManagerPolicy, k.machine, k.reservation(),
		k.settings.MemoryManagerReservedMemory, k.settings.KubeletRootDir, k.topology)
}

func addHintProvider(k *kubelet, provider topologymanager.HintProvider) {
	k.topology.AddHintProvider(silent, provider)
}

func startCPUManager(k *kubelet, containers containermap.ContainerMap) error {
	return k.cpus.Start(background, k.pods.active, k, k, nil, containers)
}

func startMemoryManager(k *kubelet, containers containermap.ContainerMap) error {
	return k.memory.Start(background, k.pods.active, k, k, nil, containers)
}

func startDeviceManager(k *kubelet, containers containermap.ContainerMap, running sets.Set[string]) error {
	return k.devices.Start(silent, k.pods.active, k, containers, running)
}

func stopDeviceManager(k *kubelet) {
	_ = k.devices.Stop(silent)
}

func connectPlugin(k *kubelet, plugin *devicePlugin) error {
	if err := k.devices.PluginConnected(background, plugin.spec.Resource, plugin); err != nil {
		return err
	}
	k.devices.PluginListAndWatchReceiver(silent, plugin.spec.Resource, plugin.list())
	return nil
}

func setMachineInfo(k *kubelet, node *v1.Node) error {
	return nodestatus.MachineInfo("node", int(k.config.MaxPods), int(k.config.PodsPerCore),
		func() (*machineInfo, error) { return k.machine, nil },
		func(klog.Logger, bool) v1.ResourceList { return k.capacity },
		k.devices.GetCapacity, k.reservation, func(string, string, string) {},
		func() *bool { return nil }, true)(background, node)
}

func addPod(k *kubelet, pod *v1.Pod) (bool, string, string) {
	return k.allocation.AddPod(background, k.pods.active(), pod)
}

func removePod(k *kubelet, uid types.UID) { k.allocation.RemovePod(silent, uid) }

func pushResize(k *kubelet, uid types.UID) { k.allocation.PushPendingResize(silent, uid) }

func retryResizes(k *kubelet, trigger string) { k.allocation.RetryPendingResizes(background, trigger) }

func clearPendingResize(k *kubelet, uid types.UID) {
	k.statuses.ClearPodResizePendingCondition(uid, metrics.DeferredResizeResolutionReverted)
}

// startContainer does what the kubelet does with its managers before it starts a container.
func startContainer(k *kubelet, pod *v1.Pod, container *v1.Container) error {
	_, err := k.devices.GetDeviceRunContainerOptions(background, pod, container)
	id := containerID(pod, container)
	k.cpus.AddContainer(silent, pod, container, id)
	k.memory.AddContainer(silent, pod, container, id)
	k.topology.AddContainer(silent, pod, container, id)
	return err
}

func removeContainer(k *kubelet, id string) { _ = k.topology.RemoveContainer(silent, id) }

// forgetHints removes hints that the kubelet would keep, and never read, until it ends.
func forgetHints(k *kubelet, pod *v1.Pod) {
	for _, container := range containersOf(pod) {
		id := containerID(pod, container)
		k.topology.AddContainer(silent, pod, container, id)
		_ = k.topology.RemoveContainer(silent, id)
	}
}

func newAllocationManager(k *kubelet, folder string) allocation.Manager {
	return allocation.NewManager(folder, k.statuses, func(context.Context, *v1.Pod) {}, k.pods.active,
		k.pods.GetPodByUID, k, recorder, silent)
}

// addHandlers adds the handlers of admission in the kubelet's order, without those that ask the host.
func addHandlers(k *kubelet) {
	predicates := lifecycle.NewPredicateAdmitHandler(k.getNode, k.criticalPods(), k.devices.UpdatePluginResources)
	k.allocation.AddPodAdmitHandlers(lifecycle.PodAdmitHandlers{
		allocation.NewPodResizesAdmitHandler(containerManager{kubelet: k}, containerRuntime{}, k.allocation),
		k.topology, totalsHandler{predicates, k}, lifecycle.NewPodFeaturesAdmitHandler(),
	})
}

// Admit asks the predicates, if the request wants them.
func (h totalsHandler) Admit(ctx context.Context, attributes *lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	if !h.kubelet.totals {
		return lifecycle.PodAdmitResult{Admit: true}
	}
	return h.PodAdmitHandler.Admit(ctx, attributes)
}
