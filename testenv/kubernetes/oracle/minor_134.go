//go:build k134

package main

import (
	cadvisorapi "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/kubelet/allocation"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/kubeletconfig/util/codec"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/nodestatus"
	"k8s.io/utils/cpuset"
	_ "unsafe" // for linkname
)

// How 1.34 spells the calls.

type machineInfo = cadvisorapi.MachineInfo

//go:linkname newManagerImpl k8s.io/kubernetes/pkg/kubelet/cm/devicemanager.newManagerImpl
func newManagerImpl(socket string, topology []cadvisorapi.Node,
	store topologymanager.Store) (*devicemanager.ManagerImpl, error)

//go:linkname getReservedCPUs k8s.io/kubernetes/cmd/kubelet/app.getReservedCPUs
func getReservedCPUs(machine *cadvisorapi.MachineInfo, cpus string) (cpuset.CPUSet, error)

func reservedSystemCPUs(machine *machineInfo, cpus string) (cpuset.CPUSet, error) {
	return getReservedCPUs(machine, cpus)
}

func decodeConfig(data []byte) (*kubeletconfig.KubeletConfiguration, error) {
	return codec.DecodeKubeletConfiguration(background, codecs, data)
}

func newTopologyManager(k *kubelet) (topologymanager.Manager, error) {
	return topologymanager.NewManager(k.machine.Topology, k.settings.TopologyManagerPolicy,
		k.settings.TopologyManagerScope, k.settings.TopologyManagerPolicyOptions)
}

func newDeviceManager(socket string, k *kubelet) (*devicemanager.ManagerImpl, error) {
	return newManagerImpl(socket, k.machine.Topology, k.topology)
}

func newCPUManager(k *kubelet) (cpumanager.Manager, error) {
	return cpumanager.NewManager(k.settings.CPUManagerPolicy, k.settings.CPUManagerPolicyOptions,
		k.settings.CPUManagerReconcilePeriod, k.machine, k.settings.ReservedSystemCPUs, k.reservation(),
		k.settings.KubeletRootDir, k.topology)
}

func newMemoryManager(k *kubelet) (memorymanager.Manager, error) {
	return memorymanager.NewManager(background, k.settings.MemoryManagerPolicy, k.machine, k.reservation(),
		k.settings.MemoryManagerReservedMemory, k.settings.KubeletRootDir, k.topology)
}

func addHintProvider(k *kubelet, provider topologymanager.HintProvider) {
	k.topology.AddHintProvider(provider)
}

func startCPUManager(k *kubelet, containers containermap.ContainerMap) error {
	return k.cpus.Start(k.pods.active, k, k, nil, containers)
}

func startMemoryManager(k *kubelet, containers containermap.ContainerMap) error {
	return k.memory.Start(background, k.pods.active, k, k, nil, containers)
}

func startDeviceManager(k *kubelet, containers containermap.ContainerMap, running sets.Set[string]) error {
	return k.devices.Start(k.pods.active, k, containers, running)
}

func stopDeviceManager(k *kubelet) {
	_ = k.devices.Stop()
}

func connectPlugin(k *kubelet, plugin *devicePlugin) error {
	if err := k.devices.PluginConnected(plugin.spec.Resource, plugin); err != nil {
		return err
	}
	k.devices.PluginListAndWatchReceiver(plugin.spec.Resource, plugin.list())
	return nil
}

func setMachineInfo(k *kubelet, node *v1.Node) error {
	return nodestatus.MachineInfo("node", int(k.config.MaxPods), int(k.config.PodsPerCore),
		func() (*machineInfo, error) { return k.machine, nil },
		func(bool) v1.ResourceList { return k.capacity },
		k.devices.GetCapacity, k.reservation, func(string, string, string) {}, true)(background, node)
}

func addPod(k *kubelet, pod *v1.Pod) (bool, string, string) {
	return k.allocation.AddPod(k.pods.active(), pod)
}

func removePod(k *kubelet, uid types.UID) { k.allocation.RemovePod(uid) }

func pushResize(k *kubelet, uid types.UID) { k.allocation.PushPendingResize(uid) }

func retryResizes(k *kubelet, trigger string) { k.allocation.RetryPendingResizes(trigger) }

func clearPendingResize(k *kubelet, uid types.UID) { k.statuses.ClearPodResizePendingCondition(uid) }

// startContainer does what the kubelet does with its managers before it starts a container.
func startContainer(k *kubelet, pod *v1.Pod, container *v1.Container) error {
	_, err := k.devices.GetDeviceRunContainerOptions(pod, container)
	id := containerID(pod, container)
	k.cpus.AddContainer(pod, container, id)
	k.memory.AddContainer(background, pod, container, id)
	k.topology.AddContainer(pod, container, id)
	return err
}

func removeContainer(k *kubelet, id string) { _ = k.topology.RemoveContainer(id) }

// forgetHints removes hints that the kubelet would keep, and never read, until it ends.
func forgetHints(k *kubelet, pod *v1.Pod) {
	for _, container := range containersOf(pod) {
		id := containerID(pod, container)
		k.topology.AddContainer(pod, container, id)
		_ = k.topology.RemoveContainer(id)
	}
}

func newAllocationManager(k *kubelet, folder string) allocation.Manager {
	manager := allocation.NewManager(folder, containerManager{kubelet: k}, k.statuses, func(*v1.Pod) {}, k.pods.active,
		k.pods.GetPodByUID, k, recorder)
	manager.SetContainerRuntime(containerRuntime{})
	return manager
}

// addHandlers adds the handlers of admission in the kubelet's order, without those that ask the host.
func addHandlers(k *kubelet) {
	getNode := func() (*v1.Node, error) { return k.node, nil }
	predicates := lifecycle.NewPredicateAdmitHandler(getNode, k.criticalPods(), k.devices.UpdatePluginResources)
	k.allocation.AddPodAdmitHandlers(lifecycle.PodAdmitHandlers{
		k.topology, totalsHandler{predicates, k}, lifecycle.NewPodFeaturesAdmitHandler(),
	})
}
