use super::*;

fn version(text: &str) -> Version {
    text.parse().unwrap()
}

fn failed<T>() -> Detection<T> {
    Detection::Detected(Err(Error::NoOperands))
}

#[test]
fn answers_have_the_forms_of_the_go_deployer() {
    let kubernetes = ClusterInfo {
        platform: Detection::Detected(Ok(Platform::Kubernetes)),
        version: Detection::Detected(Ok(version("v1.27.3"))),
    };
    let openshift = ClusterInfo {
        platform: Detection::Given(Platform::OpenShift),
        version: Detection::Given(version("v4.14")),
    };
    let half = ClusterInfo { platform: failed(), version: Detection::Detected(Ok(version("v1.27.3"))) };
    let nothing = ClusterInfo { platform: failed(), version: failed() };
    for (cluster, text, json) in [
        (
            kubernetes,
            "Kubernetes:v1.27.3",
            r#"{"platform":{"autoDetected":"Kubernetes","userSupplied":"Unknown","discovered":"Kubernetes"},"version":{"autoDetected":"v1.27.3","userSupplied":"","discovered":"v1.27.3"}}"#,
        ),
        (
            openshift,
            "OpenShift:v4.14",
            r#"{"platform":{"autoDetected":"Unknown","userSupplied":"OpenShift","discovered":"OpenShift"},"version":{"autoDetected":"","userSupplied":"v4.14","discovered":"v4.14"}}"#,
        ),
        (
            half,
            "Unknown:v1.27.3",
            r#"{"platform":{"autoDetected":"Unknown","userSupplied":"Unknown","discovered":"Unknown"},"version":{"autoDetected":"v1.27.3","userSupplied":"","discovered":"v1.27.3"}}"#,
        ),
        (
            nothing,
            "Unknown:",
            r#"{"platform":{"autoDetected":"Unknown","userSupplied":"Unknown","discovered":"Unknown"},"version":{"autoDetected":"","userSupplied":"","discovered":""}}"#,
        ),
    ] {
        assert_eq!(cluster.to_string(), text);
        assert_eq!(serde_json::to_string(&cluster).unwrap(), json);
    }
}

#[test]
fn platform_specs_are_read_completely_or_rejected() {
    let given = |platform, version: Option<&str>| {
        Ok(PlatformSpec { platform: Some(platform), version: version.map(|text| text.parse().unwrap()) })
    };
    for (text, wanted) in [
        ("kubernetes:v1.36", given(Platform::Kubernetes, Some("v1.36"))),
        ("OpenShift:4.18", given(Platform::OpenShift, Some("4.18"))),
        ("hypershift", given(Platform::HyperShift, None)),
        ("kubernetes:", given(Platform::Kubernetes, None)),
        ("k8s:1.30", Err("platform \"k8s\" is none of Kubernetes, OpenShift, HyperShift".to_owned())),
        ("kubernetes:new", Err("malformed version: new".to_owned())),
        ("kubernetes:1:2", Err("malformed version: 1:2".to_owned())),
        ("", Err("platform \"\" is none of Kubernetes, OpenShift, HyperShift".to_owned())),
    ] {
        assert_eq!(text.parse::<PlatformSpec>().map_err(|error| error.to_string()), wanted, "{text}");
    }
}
