//! S3: which images a Module needs, and whether they are there.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::cluster_state::Kind;
use super::super::kernel;
use super::super::labels::{GROUP, ModuleName, VERSION};
use super::super::script::Stage;
use super::super::write::{Operation, Write};
use super::{Module, PlanInputs, kernel_of};

impl PlanInputs<'_> {
    /// ModuleImagesConfigs, and the state of each image. A missing image is looked for again and again, without
    /// an event.
    pub(super) fn images(&self, writes: &mut Vec<Write>) {
        if !self.script.reaches(Stage::S3) {
            return;
        }
        for module in self.modules.values() {
            if module.is_leaving || !module.body["spec"]["moduleLoader"].is_object() {
                continue;
            }
            let wanted = self.wanted(module);
            let key = module.of.key();
            let Some(there) = self.state.get(Kind::Images, &key) else {
                writes.push(Write::new(
                    Kind::Images,
                    key,
                    Operation::Create(made(module, &wanted)),
                    "S3 images",
                ));
                continue;
            };
            if there["spec"]["images"].as_array() != Some(&wanted) {
                let patch = json!({ "spec": { "images": wanted } });
                writes.push(Write::guarded(Kind::Images, &key, there, patch, "S3 images"));
                continue;
            }
            let found = wanted.iter().map(|image| &image["image"]);
            let found = found.filter(|image| !self.script.is_missing(image.as_str().unwrap_or_default()));
            let states: Vec<Value> =
                found.map(|image| json!({ "image": image, "status": "Exists" })).collect();
            let known = there["status"]["imagesStates"].as_array().map_or(&[][..], Vec::as_slice);
            if known != states {
                let patch = json!({ "status": { "imagesStates": states } });
                writes.push(Write::new(Kind::Images, key, Operation::Status(patch), "S3 what is found"));
            }
        }
    }

    /// Each image once, with the kernel it is for.
    fn wanted(&self, module: &Module<'_>) -> Vec<Value> {
        let mut all = BTreeMap::new();
        for (node, image) in &module.targets {
            let Some((image, node)) = image.as_ref().zip(self.state.get(Kind::Node, node)) else { continue };
            all.entry(image).or_insert_with(
                || json!({ "image": image, "kernelVersion": kernel::version(kernel_of(node)) }),
            );
        }
        all.into_values().collect()
    }

    /// Whether an image of a module is proven to be there.
    pub(super) fn exists(&self, of: &ModuleName, image: &str) -> bool {
        let images = self.state.get(Kind::Images, &of.key());
        let states = images.and_then(|images| images["status"]["imagesStates"].as_array());
        states.into_iter().flatten().any(|state| state["image"] == image && state["status"] == "Exists")
    }
}

fn made(module: &Module<'_>, wanted: &[Value]) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "ModuleImagesConfig",
        "metadata": {
            "namespace": module.of.namespace, "name": module.of.name, "ownerReferences": [owner(module)],
        },
        "spec": { "images": wanted },
    })
}

/// The Module as what it makes names it.
pub(super) fn owner(module: &Module<'_>) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "Module",
        "name": module.of.name,
        "uid": module.body["metadata"]["uid"],
        "controller": true,
        "blockOwnerDeletion": true,
    })
}
