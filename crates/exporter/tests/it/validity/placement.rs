//! Containers' zones as the plugin decodes them.

use super::*;

const METADATA: &str = "topology.node.k8s.io/numaplacement-metadata";
const VECTOR: &str = "topology.node.k8s.io/numaplacement-vector";

/// The plugin's key of a container.
pub(super) fn key((namespace, pod, container): (&str, &str, &str)) -> u64 {
    xxh64(format!("{namespace}\0{pod}\0{container}").as_bytes(), 0)
}

/// The zone of each container in the order of their keys; nothing when none are published.
pub(super) fn read(
    object: &Value,
    attributes: &[(&str, &str)],
    known: &Expected,
) -> Result<Option<Vec<u32>>, String> {
    let mut vectors = BTreeMap::new();
    let mut ids = BTreeSet::new();
    for zone in object["zones"].as_array().into_iter().flatten() {
        let of_zone = super::attributes("a zone", &zone["attributes"], &mut Wrong::default());
        ids.extend(zones::id(text(&zone["name"])));
        if of_zone.iter().filter(|(name, _)| *name == VECTOR).count() > 1 {
            return Err(format!("{} has two vectors", zone["name"]));
        }
        if let (Some(vector), Some(id)) = (get(&of_zone, VECTOR), zones::id(text(&zone["name"]))) {
            vectors.insert(id, vector);
        }
    }
    let Some(metadata) = get(attributes, METADATA) else {
        return if vectors.is_empty() { Ok(None) } else { Err("vectors without metadata".to_owned()) };
    };
    let [containers, nodes, busiest] = numbers(metadata)?;
    if nodes != ids.len() {
        return Err(format!("nn={nodes}, but there are {} zones", ids.len()));
    }
    let busiest = u32::try_from(busiest).ok().filter(|id| (*id as usize) < nodes && ids.contains(id));
    let busiest = busiest.ok_or_else(|| format!("bn is no zone of {ids:?}"))?;
    if vectors.contains_key(&busiest) || vectors.keys().any(|id| *id as usize >= nodes) {
        return Err(format!("vectors on zones {:?} of {nodes}, the busiest is {busiest}", vectors.keys()));
    }
    let mut places = vec![None; containers];
    for (zone, vector) in vectors {
        if vector.is_empty() {
            return Err(format!("the vector of zone {zone} is empty"));
        }
        for offset in offsets(vector)? {
            let place = places.get_mut(offset).ok_or_else(|| format!("offset {offset} of {containers}"))?;
            if place.replace(zone).is_some() {
                return Err(format!("offset {offset} twice"));
            }
        }
    }
    let places: Vec<_> = places.into_iter().map(|place| place.unwrap_or(busiest)).collect();
    most(&places, busiest)?;
    match known.containers {
        Some(known) if known.len() != containers => {
            Err(format!("cc={containers}, it should be {}", known.len()))
        }
        _ => Ok(Some(places)),
    }
}

/// Whether the zone that needs no vector is the one with most containers, the first of equals.
fn most(places: &[u32], busiest: u32) -> Result<(), String> {
    let mut counts = BTreeMap::from([(0, 0)]);
    places.iter().for_each(|zone| *counts.entry(*zone).or_insert(0) += 1);
    let most = counts.values().max();
    let first = counts.iter().find(|(_, count)| Some(*count) == most).map(|(zone, _)| *zone);
    if first == Some(busiest) {
        Ok(())
    } else {
        Err(format!("bn={busiest}, but the containers are {counts:?}"))
    }
}

/// Containers, zones, busiest zone.
fn numbers(metadata: &str) -> Result<[usize; 3], String> {
    let mut pairs = BTreeMap::new();
    for pair in metadata.strip_prefix("npv0v001::").ok_or("not npv0v001")?.split("::") {
        let (key, value) = pair.split_once('=').ok_or_else(|| format!("{pair:?} is not key=value"))?;
        if pairs.insert(key, value).is_some() {
            return Err(format!("two values of {key}"));
        }
    }
    if pairs.len() != 4 || pairs.get("ve") != Some(&"leb89") {
        return Err(format!("{metadata:?} is not ve=leb89, cc, nn and bn"));
    }
    let number = |key: &str| pairs.get(key).and_then(|value| value.parse().ok());
    match ["cc", "nn", "bn"].map(number) {
        [Some(containers), Some(nodes), Some(busiest)] if containers <= 100_000 => {
            Ok([containers, nodes, busiest])
        }
        other => Err(format!("cc, nn and bn are {other:?}")),
    }
}

/// The offsets that a vector stands for.
fn offsets(vector: &str) -> Result<Vec<usize>, String> {
    let alphabet: Vec<u8> = (b'!'..=b'~').filter(|byte| !b"\"&<>\\".contains(byte)).collect();
    let (mut all, mut quotient, mut last) = (Vec::new(), None, 0_usize);
    for byte in vector.bytes() {
        let at = alphabet.iter().position(|known| *known == byte);
        let at = at.ok_or_else(|| format!("byte {byte:#x} makes the plugin panic"))?;
        if at >= 64 {
            quotient = Some(quotient.unwrap_or(0) * 25 + at - 64);
            if quotient > Some(100_000) {
                return Err(format!("{vector:?} is beyond all bounds"));
            }
            continue;
        }
        last += quotient.take().map_or(at, |quotient: usize| 64 + quotient * 64 + at);
        all.push(last);
    }
    if quotient.is_some() { Err(format!("{vector:?} ends too early")) } else { Ok(all) }
}
