package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clientcache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// request is a line of input: a cluster, and a pod to place.
type request struct {
	Nodes                  []*v1.Node                      `json:"nodes"`
	Pods                   []*v1.Pod                       `json:"pods"`
	Namespaces             []*v1.Namespace                 `json:"namespaces"`
	Services               []*v1.Service                   `json:"services"`
	ReplicationControllers []*v1.ReplicationController     `json:"replicationControllers"`
	ReplicaSets            []*appsv1.ReplicaSet            `json:"replicaSets"`
	StatefulSets           []*appsv1.StatefulSet           `json:"statefulSets"`
	Budgets                []*policyv1.PodDisruptionBudget `json:"podDisruptionBudgets"`
	Storage                storageObjects                  `json:"storage"`
	Devices                deviceObjects                   `json:"devices"`
	// A KubeSchedulerConfiguration; without it that of a kube-scheduler without a file.
	Configuration json.RawMessage `json:"configuration"`
	Pod           *v1.Pod         `json:"pod"`
}

// maxEvents is more than preemption in one cluster can cause.
const maxEvents = 10000

// cycle is one scheduling cycle: kube-scheduler's framework over a snapshot of the cluster.
type cycle struct {
	pod       *v1.Pod
	snapshot  *cache.Snapshot
	framework framework.Framework
	client    *fake.Clientset
	manager   *manager
	claims    []*resourceapi.ResourceClaim
}

// newCycle fills listers and snapshot. Informers do not run: what they would have received is put into their caches.
func newCycle(ctx context.Context, asked *request) (*cycle, error) {
	profile, err := profileOf(asked)
	if err != nil {
		return nil, err
	}
	client := fake.NewClientset(objectsOf(asked)...)
	factory := informers.NewSharedInformerFactory(client, 0)
	if err := fill(factory, asked); err != nil {
		return nil, err
	}
	var onNodes []*v1.Pod
	pending := queue.NewSchedulingQueue(byName, factory)
	for _, pod := range asked.Pods {
		if pod.Spec.NodeName != "" {
			onNodes = append(onNodes, pod)
		}
	}
	snapshot := cache.NewSnapshot(onNodes, asked.Nodes)
	manager, err := claimManager(ctx, factory, &asked.Devices)
	if err != nil {
		return nil, err
	}
	handle, err := frameworkruntime.NewFramework(ctx, plugins.NewInTreeRegistry(), profile,
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithEventRecorder(events.NewFakeRecorder(maxEvents)),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSnapshotSharedLister(snapshot),
		frameworkruntime.WithPodNominator(pending),
		frameworkruntime.WithSharedDRAManager(manager),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()),
		frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap()),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
	)
	if err != nil {
		return nil, err
	}
	for _, pod := range asked.Pods {
		if pod.Spec.NodeName == "" && pod.Status.NominatedNodeName != "" {
			pending.Add(ctx, pod)
		}
	}
	return &cycle{pod: asked.Pod, snapshot: snapshot, framework: handle, client: client, manager: manager,
		claims: asked.Devices.Claims}, nil
}

// byName orders pods that nobody takes from the queue.
func byName(one, other fwk.QueuedPodInfo) bool {
	return one.GetPodInfo().GetPod().Name < other.GetPodInfo().GetPod().Name
}

// profileOf reads the profile of the pod's scheduler.
func profileOf(asked *request) (*config.KubeSchedulerProfile, error) {
	configuration, err := latest.Default()
	if err != nil {
		return nil, err
	}
	if len(asked.Configuration) > 0 {
		decoded, _, err := scheme.Codecs.UniversalDecoder().Decode(asked.Configuration, nil, nil)
		if err != nil {
			return nil, err
		}
		given, ok := decoded.(*config.KubeSchedulerConfiguration)
		if !ok {
			return nil, fmt.Errorf("configuration: a %T", decoded)
		}
		configuration = given
	}
	name := asked.Pod.Spec.SchedulerName
	if name == "" {
		name = v1.DefaultSchedulerName
	}
	for at := range configuration.Profiles {
		if profile := &configuration.Profiles[at]; profile.SchedulerName == name {
			return profile, nil
		}
	}
	return nil, fmt.Errorf("pod.spec.schedulerName: no profile %q", name)
}

func objectsOf(asked *request) []runtime.Object {
	var objects []runtime.Object
	for _, pod := range asked.Pods {
		objects = append(objects, pod)
	}
	for _, claim := range asked.Devices.Claims {
		objects = append(objects, claim)
	}
	return append(objects, asked.Pod)
}

// fill puts objects into the caches that listers read.
func fill(factory informers.SharedInformerFactory, asked *request) error {
	core := factory.Core().V1()
	return errors.Join(
		add(core.Nodes().Informer(), asked.Nodes...),
		add(core.Pods().Informer(), asked.Pods...),
		add(core.Pods().Informer(), asked.Pod),
		add(core.Namespaces().Informer(), asked.Namespaces...),
		add(core.Services().Informer(), asked.Services...),
		add(core.ReplicationControllers().Informer(), asked.ReplicationControllers...),
		add(factory.Apps().V1().ReplicaSets().Informer(), asked.ReplicaSets...),
		add(factory.Apps().V1().StatefulSets().Informer(), asked.StatefulSets...),
		add(factory.Policy().V1().PodDisruptionBudgets().Informer(), asked.Budgets...),
		asked.Storage.fill(factory),
		asked.Devices.fill(factory),
	)
}

// add puts objects into the cache of one kind.
func add[T any](informer clientcache.SharedIndexInformer, objects ...*T) error {
	var failed error
	for _, object := range objects {
		failed = errors.Join(failed, informer.GetIndexer().Add(object))
	}
	return failed
}
