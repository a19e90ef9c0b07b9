package main

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	apiv1 "k8s.io/kubernetes/pkg/apis/core/v1"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// pods are the pods that the kubelet knows and that have not ended, in the order in which they came.
type pods struct {
	order []*v1.Pod
	byUID map[types.UID]*v1.Pod
}

func newPods() *pods { return &pods{byUID: map[types.UID]*v1.Pod{}} }

// add puts a pod behind the others.
func (p *pods) add(pod *v1.Pod) {
	p.order = append(p.order, pod)
	p.byUID[pod.UID] = pod
}

// replace puts a new version of a pod in its place.
func (p *pods) replace(pod *v1.Pod) {
	for i, old := range p.order {
		if old.UID == pod.UID {
			p.order[i] = pod
		}
	}
	p.byUID[pod.UID] = pod
}

// remove forgets a pod.
func (p *pods) remove(uid types.UID) {
	delete(p.byUID, uid)
	p.order = slices.DeleteFunc(p.order, func(pod *v1.Pod) bool { return pod.UID == uid })
}

// active is a new slice of all of them.
func (p *pods) active() []*v1.Pod { return slices.Clone(p.order) }

// sorted is a new slice of all of them, the oldest first; pods of one second keep their order.
func (p *pods) sorted() []*v1.Pod {
	sorted := slices.Clone(p.order)
	slices.SortStableFunc(sorted, func(a, b *v1.Pod) int {
		return a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time)
	})
	return sorted
}

// GetPodByUID finds a pod.
func (p *pods) GetPodByUID(uid types.UID) (*v1.Pod, bool) {
	pod, ok := p.byUID[uid]
	return pod, ok
}

// GetMirrorPodByPod finds nothing: there are no static pods.
func (p *pods) GetMirrorPodByPod(*v1.Pod) (*v1.Pod, bool) { return nil, false }

// TranslatePodUID is the identity: there are no static pods.
func (p *pods) TranslatePodUID(uid types.UID) kubetypes.ResolvedPodUID {
	return kubetypes.ResolvedPodUID(uid)
}

// GetUIDTranslations is empty: there are no static pods.
func (p *pods) GetUIDTranslations() (map[kubetypes.ResolvedPodUID]kubetypes.MirrorPodUID,
	map[kubetypes.MirrorPodUID]kubetypes.ResolvedPodUID) {
	return nil, nil
}

// complete gives a pod what an API server would have given it: defaults, and a UID.
func complete(pod *v1.Pod) {
	apiv1.SetObjectDefaults_Pod(pod)
	if pod.UID == "" {
		pod.UID = types.UID(pod.Namespace + "/" + pod.Name)
	}
	// The parser leaves spare room in slices, which the managers' appends would share.
	pod.Spec.InitContainers = slices.Clip(pod.Spec.InitContainers)
	pod.Spec.Containers = slices.Clip(pod.Spec.Containers)
}

// containersOf are the init containers, then the containers.
func containersOf(pod *v1.Pod) []*v1.Container {
	var all []*v1.Container
	for i := range pod.Spec.InitContainers {
		all = append(all, &pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		all = append(all, &pod.Spec.Containers[i])
	}
	return all
}

// endsByItself says whether a container is an init container that ends before the next one starts.
func endsByItself(pod *v1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c v1.Container) bool {
		return c.Name == name && (c.RestartPolicy == nil || *c.RestartPolicy != v1.ContainerRestartPolicyAlways)
	})
}

// containerID is the runtime's id of a pod's container, of which there is one in a pod's life.
func containerID(pod *v1.Pod, container *v1.Container) string {
	return strings.Join([]string{string(pod.UID), container.Name}, "|")
}
