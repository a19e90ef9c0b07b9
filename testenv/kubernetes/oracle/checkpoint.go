package main

import (
	"fmt"
	"reflect"
	"unsafe"

	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
)

// lateCheckpoints writes checkpoints when somebody wants to read them, which is at a restart. The managers write
// several a pod, and only the last one of a life counts.
//
// In: checkpoints, which the managers make anew each time. Out: the files of the manager beneath.
type lateCheckpoints struct {
	beneath checkpointmanager.CheckpointManager
	pending map[string]checkpointmanager.Checkpoint
}

// CreateCheckpoint keeps a checkpoint in memory.
func (l *lateCheckpoints) CreateCheckpoint(key string, checkpoint checkpointmanager.Checkpoint) error {
	l.pending[key] = checkpoint
	return nil
}

// GetCheckpoint reads a file, after it was written.
func (l *lateCheckpoints) GetCheckpoint(key string, checkpoint checkpointmanager.Checkpoint) error {
	if err := l.write(); err != nil {
		return err
	}
	return l.beneath.GetCheckpoint(key, checkpoint)
}

// RemoveCheckpoint removes a checkpoint wherever it is.
func (l *lateCheckpoints) RemoveCheckpoint(key string) error {
	delete(l.pending, key)
	return l.beneath.RemoveCheckpoint(key)
}

// ListCheckpoints lists the files, after they were written.
func (l *lateCheckpoints) ListCheckpoints() ([]string, error) {
	if err := l.write(); err != nil {
		return nil, err
	}
	return l.beneath.ListCheckpoints()
}

// write writes what is pending.
func (l *lateCheckpoints) write() error {
	for key, checkpoint := range l.pending {
		if err := l.beneath.CreateCheckpoint(key, checkpoint); err != nil {
			return err
		}
		delete(l.pending, key)
	}
	return nil
}

// delay puts itself between a manager and its checkpoints. The path names the fields, exported or not, that lead from
// the manager to its checkpoint manager.
func delay(manager any, path ...string) *lateCheckpoints {
	value := reflect.ValueOf(manager)
	for _, name := range path {
		for value.Kind() == reflect.Interface || value.Kind() == reflect.Pointer {
			value = value.Elem()
		}
		field := value.FieldByName(name)
		if !field.IsValid() {
			panic(fmt.Sprintf("%s has no field %s", value.Type(), name))
		}
		value = reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem()
	}
	late := &lateCheckpoints{pending: map[string]checkpointmanager.Checkpoint{}}
	late.beneath = value.Interface().(checkpointmanager.CheckpointManager)
	value.Set(reflect.ValueOf(late))
	return late
}
