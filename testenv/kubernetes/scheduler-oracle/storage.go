package main

import (
	"errors"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/informers"
)

// storageObjects are the objects of a request that volume plugins look at.
type storageObjects struct {
	Volumes     []*v1.PersistentVolume          `json:"persistentVolumes"`
	Claims      []*v1.PersistentVolumeClaim     `json:"persistentVolumeClaims"`
	Classes     []*storagev1.StorageClass       `json:"storageClasses"`
	CSINodes    []*storagev1.CSINode            `json:"csiNodes"`
	Drivers     []*storagev1.CSIDriver          `json:"csiDrivers"`
	Capacities  []*storagev1.CSIStorageCapacity `json:"csiStorageCapacities"`
	Attachments []*storagev1.VolumeAttachment   `json:"volumeAttachments"`
}

// fill puts them into the caches that listers read.
func (o *storageObjects) fill(factory informers.SharedInformerFactory) error {
	core, storage := factory.Core().V1(), factory.Storage().V1()
	return errors.Join(
		add(core.PersistentVolumes().Informer(), o.Volumes...),
		add(core.PersistentVolumeClaims().Informer(), o.Claims...),
		add(storage.StorageClasses().Informer(), o.Classes...),
		add(storage.CSINodes().Informer(), o.CSINodes...),
		add(storage.CSIDrivers().Informer(), o.Drivers...),
		add(storage.CSIStorageCapacities().Informer(), o.Capacities...),
		add(storage.VolumeAttachments().Informer(), o.Attachments...),
	)
}
