package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// refusal is why a node does not fit.
type refusal struct {
	Plugin  string   `json:"plugin"`
	Code    string   `json:"code"`
	Reasons []string `json:"reasons"`
}

// score is what plugins give a node, with their weights.
type score struct {
	Total   int64            `json:"total"`
	Plugins map[string]int64 `json:"plugins"`
}

// answer is what the cycle comes to. There are scores where several nodes fit.
type answer struct {
	Fits    []string           `json:"fits"`
	Scores  map[string]score   `json:"scores"`
	Refused map[string]refusal `json:"refused"`
	// The filters that had something to look at.
	Filters []string `json:"filters"`
	Message string   `json:"message"`
	// The devices that claims of the pod get on nodes that fit, by node and claim.
	Allocations map[string]map[string]*resourceapi.AllocationResult `json:"allocations"`
	// The claims of which devices are given back, and those that are deleted.
	Deallocated []string `json:"deallocated"`
	// What preemption does.
	Nominated string   `json:"nominated"`
	Victims   []string `json:"victims"`
}

// run is kube-scheduler's `schedulePod` for all nodes, and the part of `ScheduleOne` behind a failure.
func (c *cycle) run(ctx context.Context) (*answer, error) {
	found := &answer{Fits: []string{}, Scores: map[string]score{}, Refused: map[string]refusal{}, Filters: []string{},
		Allocations: map[string]map[string]*resourceapi.AllocationResult{}, Deallocated: []string{}, Victims: []string{}}
	nodes, err := c.snapshot.List()
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		found.Message = "no nodes available to schedule pods"
		return found, nil
	}
	state := framework.NewCycleState()
	diagnosis := framework.Diagnosis{NodeToStatus: framework.NewDefaultNodeToStatus()}
	feasible, err := c.filter(ctx, state, nodes, &diagnosis, found)
	if errors.Is(err, errClaims) {
		// The attempt ends, and nothing is preempted.
		found.Refused, found.Message = map[string]refusal{}, err.Error()
		return found, nil
	}
	if err != nil {
		return nil, err
	}
	if len(feasible) == 0 {
		return found, c.fail(ctx, state, len(nodes), &diagnosis, found)
	}
	for _, node := range feasible {
		found.Fits = append(found.Fits, node.Node().Name)
	}
	sort.Strings(found.Fits)
	for _, name := range found.Fits {
		if usesDevices(c.pod) {
			if found.Allocations[name], err = c.allocations(ctx, state, name); err != nil {
				return nil, err
			}
		}
	}
	if len(feasible) == 1 {
		return found, nil
	}
	return found, c.score(ctx, state, feasible, found)
}

// errClaims has no text of its own: a claim or a class is in error.
var errClaims = errors.New("")

func (c *cycle) filter(ctx context.Context, state fwk.CycleState, nodes []fwk.NodeInfo,
	diagnosis *framework.Diagnosis, found *answer) ([]fwk.NodeInfo, error) {
	narrowed, status, plugins := c.framework.RunPreFilterPlugins(ctx, state, c.pod)
	diagnosis.UnschedulablePlugins = plugins
	if !status.IsSuccess() {
		if !status.IsRejected() {
			return nil, status.AsError()
		}
		diagnosis.NodeToStatus.SetAbsentNodesStatus(status)
		diagnosis.PreFilterMsg = status.Message()
		for _, node := range nodes {
			found.Refused[node.Node().Name] = refusalOf(status)
		}
		return nil, nil
	}
	for _, plugin := range c.framework.ListPlugins().Filter.Enabled {
		if !state.GetSkipFilterPlugins().Has(plugin.Name) {
			found.Filters = append(found.Filters, plugin.Name)
		}
	}
	if nominated := c.nominated(ctx, state); nominated != nil {
		return []fwk.NodeInfo{nominated}, nil
	}
	if !narrowed.AllNodes() {
		absent := fwk.NewStatus(fwk.UnschedulableAndUnresolvable,
			fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", sets.List(plugins)))
		diagnosis.NodeToStatus.SetAbsentNodesStatus(absent)
	}
	var feasible []fwk.NodeInfo
	for _, node := range nodes {
		name := node.Node().Name
		if !narrowed.AllNodes() && !narrowed.NodeNames.Has(name) {
			found.Refused[name] = refusal{Plugin: sets.List(plugins)[0], Code: fwk.UnschedulableAndUnresolvable.String(),
				Reasons: diagnosis.NodeToStatus.AbsentNodesStatus().Reasons()}
			continue
		}
		status := c.framework.RunFilterPluginsWithNominatedPods(ctx, state, c.pod, node)
		if status.Code() == fwk.Error {
			if strings.HasPrefix(status.Message(), `running "DynamicResources" filter plugin: `) {
				return nil, fmt.Errorf("%w%s", errClaims, status.Message())
			}
			return nil, status.AsError()
		}
		if status.IsSuccess() {
			feasible = append(feasible, node)
			continue
		}
		diagnosis.NodeToStatus.Set(name, status)
		diagnosis.AddPluginStatus(status)
		found.Refused[name] = refusalOf(status)
	}
	return feasible, nil
}

// nominated is kube-scheduler's `evaluateNominatedNode`: the pod's nominated node, if it fits.
func (c *cycle) nominated(ctx context.Context, state fwk.CycleState) fwk.NodeInfo {
	node, err := c.snapshot.Get(c.pod.Status.NominatedNodeName)
	if err != nil || !c.framework.RunFilterPluginsWithNominatedPods(ctx, state, c.pod, node).IsSuccess() {
		return nil
	}
	return node
}

func refusalOf(status *fwk.Status) refusal {
	return refusal{Plugin: status.Plugin(), Code: status.Code().String(), Reasons: status.Reasons()}
}

func (c *cycle) score(ctx context.Context, state fwk.CycleState, feasible []fwk.NodeInfo, found *answer) error {
	if status := c.framework.RunPreScorePlugins(ctx, state, c.pod, feasible); !status.IsSuccess() {
		return status.AsError()
	}
	scores, status := c.framework.RunScorePlugins(ctx, state, c.pod, feasible)
	if !status.IsSuccess() {
		return status.AsError()
	}
	for _, node := range scores {
		plugins := map[string]int64{}
		for _, plugin := range node.Scores {
			plugins[plugin.Name] = plugin.Score
		}
		found.Scores[node.Name] = score{Total: node.TotalScore, Plugins: plugins}
	}
	return nil
}

// fail runs preemption and says what FailedScheduling says.
func (c *cycle) fail(ctx context.Context, state fwk.CycleState, nodes int, diagnosis *framework.Diagnosis,
	found *answer) error {
	// An error of a plugin is part of the message, as it is in kube-scheduler.
	result, status := c.framework.RunPostFilterPlugins(ctx, state, c.pod, diagnosis.NodeToStatus)
	diagnosis.PostFilterMsg = status.Message()
	if result != nil && result.NominatingInfo != nil && result.NominatingInfo.NominatedNodeName != "" {
		found.Nominated = result.NominatingInfo.NominatedNodeName
		victims, err := c.victims(ctx)
		if err != nil {
			return err
		}
		found.Victims = append(found.Victims, victims...)
	}
	for _, action := range c.client.Actions() {
		if deletion, ok := action.(clienttesting.DeleteAction); ok && deletion.GetResource().Resource == "resourceclaims" {
			found.Deallocated = append(found.Deallocated, deletion.GetNamespace()+"/"+deletion.GetName())
		}
		if action, ok := action.(clienttesting.UpdateAction); ok && action.GetSubresource() == "status" {
			if claim, ok := action.GetObject().(*resourceapi.ResourceClaim); ok {
				found.Deallocated = append(found.Deallocated, claim.Namespace+"/"+claim.Name)
			}
		}
	}
	failed := framework.FitError{Pod: c.pod, NumAllNodes: nodes, Diagnosis: *diagnosis}
	found.Message = failed.Error()
	return nil
}

// look is the time between two looks at a preemption that deletes in the background; most, how long they go on. Rarely
// kube-scheduler counts a preemption as running for ever; the caller asks again if the victims are not those expected.
const (
	look = time.Millisecond
	most = 5 * time.Second
)

// victims waits until preemption has deleted its victims. There are none where all are being deleted already.
func (c *cycle) victims(ctx context.Context) ([]string, error) {
	running := c.runningPreemption()
	if running == nil {
		return nil, errors.New("the profile does not tell when preemption is over: DefaultPreemption is off at preEnqueue")
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for ctx.Err() == nil && !running.PreEnqueue(ctx, c.pod).IsSuccess() {
		time.Sleep(look)
	}
	deleted := sets.New[string]()
	for _, action := range c.client.Actions() {
		if deletion, ok := action.(clienttesting.DeleteAction); ok && deletion.GetResource().Resource == "pods" {
			deleted.Insert(deletion.GetNamespace() + "/" + deletion.GetName())
		}
	}
	return sets.List(deleted), nil
}

// runningPreemption is DefaultPreemption, which keeps a pod out of the queue while its victims are being deleted.
func (c *cycle) runningPreemption() fwk.PreEnqueuePlugin {
	for _, plugin := range c.framework.PreEnqueuePlugins() {
		if plugin.Name() == names.DefaultPreemption {
			return plugin
		}
	}
	return nil
}
