use serde_json::json;

use super::*;

#[test]
fn a_module_is_written_in_kmms_words() {
    let module = Module {
        spec: ModuleSpec {
            selector: BTreeMap::from([(
                "hardware.tholepin.dev/driver".to_owned(),
                "hw.acc-module".to_owned(),
            )]),
            image_repo_secret: Some(NameRef { name: "pull".to_owned() }),
            module_loader: Some(ModuleLoader {
                service_account_name: Some("acc-module-loader".to_owned()),
                container: ModuleContainer {
                    version: Some("1.4.2".to_owned()),
                    kernel_mappings: vec![KernelMapping {
                        regexp: Some("^.+$".to_owned()),
                        container_image: "r.example/acc:1".to_owned(),
                        ..KernelMapping::default()
                    }],
                    modprobe: Modprobe { module_name: Some("acc".to_owned()), ..Modprobe::default() },
                    registry_tls: Some(RegistryTls { insecure: true, ..RegistryTls::default() }),
                    ..ModuleContainer::default()
                },
            }),
            ..ModuleSpec::default()
        },
        ..Module::default()
    };
    let wanted = json!({"metadata": {}, "spec": {
        "selector": {"hardware.tholepin.dev/driver": "hw.acc-module"},
        "imageRepoSecret": {"name": "pull"},
        "moduleLoader": {"serviceAccountName": "acc-module-loader", "container": {
            "version": "1.4.2",
            "kernelMappings": [{"regexp": "^.+$", "containerImage": "r.example/acc:1"}],
            "modprobe": {"moduleName": "acc"},
            "registryTLS": {"insecure": true},
        }},
    }});
    assert_eq!(serde_json::to_value(&module).unwrap(), wanted);
    assert_eq!(serde_json::from_value::<Module>(wanted).unwrap(), module);
}

#[test]
fn nothing_that_kmm_leaves_out_is_missed() {
    let read: Module =
        serde_json::from_value(json!({"spec": null, "status": {"moduleLoader": null}})).unwrap();
    assert_eq!(read, Module::default());
    let read: NodeModulesConfig = serde_json::from_value(json!({
        "metadata": {"name": "n"},
        "spec": {"modules": [{"namespace": "hw", "name": "acc-module", "serviceAccountName": "x",
                              "config": {"kernelVersion": "6.1", "containerImage": "a:1", "new": [1]}}]},
        "status": {},
    }))
    .unwrap();
    let entry = read.spec.of("hw", "acc-module").unwrap();
    assert_eq!((entry.kernel(), entry.image(), entry.config.len()), ("6.1", "a:1", 3));
    assert_eq!((read.spec.of("other", "acc-module"), read.status.of("hw", "acc-module")), (None, None));
    let read: ModuleImagesConfig =
        serde_json::from_value(json!({"status": {"imagesStates": [{"image": "a:1", "status": "Exists"}]}}))
            .unwrap();
    assert_eq!((read.state("a:1"), read.state("b:1")), (Some(image::EXISTS), None));
}

#[test]
fn the_longest_names_make_legal_labels() {
    let (namespace, name) = ("a".repeat(31), "m".repeat(10));
    for key in [
        keys::ready(&namespace, &name),
        keys::version_ready(&namespace, &name),
        keys::device_plugin_ready(&namespace, &name),
        keys::dra_ready(&namespace, &name),
        keys::device_plugin_target(&namespace, &name),
        keys::version_module(&namespace, &name),
        keys::version_worker_pod(&namespace, &name),
        keys::version_schedule_pod(&namespace, &name),
        keys::module_configured(&namespace, &name),
        keys::module_in_use(&namespace, &name),
    ] {
        let (_, last) = key.split_once('/').unwrap();
        assert!(last.len() <= 63, "{key}");
    }
}

#[test]
fn a_kind_is_asked_for_in_the_version_that_is_served() {
    let resource = resource(MODULE, MODULES, "v1");
    assert_eq!(
        (resource.api_version.as_str(), resource.plural.as_str()),
        ("kmm.sigs.x-k8s.io/v1", "modules")
    );
}
