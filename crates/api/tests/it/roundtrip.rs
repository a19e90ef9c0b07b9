//! Objects read as a type and written again are unchanged.

use api::crd::{operator_crd, scheduler_crd};
use api::numaresources::{NumaResourcesOperator, NumaResourcesScheduler};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::generate::{meaning, parts};

fn again<T: Serialize + DeserializeOwned>(parts: &Value) -> Value {
    let mut object = parts.clone();
    object["metadata"] = json!({"name": "x", "uid": "y", "annotations": {"a": "b"}});
    let read: T = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(meaning(&serde_json::to_value(&read).unwrap()), meaning(&object));
    serde_json::to_value(read).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_is_lost_of_an_operator(parts in parts(&operator_crd())) {
        let once = again::<NumaResourcesOperator>(&parts);
        prop_assert_eq!(again::<NumaResourcesOperator>(&once), once);
    }

    #[test]
    fn nothing_is_lost_of_a_scheduler(parts in parts(&scheduler_crd())) {
        let once = again::<NumaResourcesScheduler>(&parts);
        prop_assert_eq!(again::<NumaResourcesScheduler>(&once), once);
    }
}
