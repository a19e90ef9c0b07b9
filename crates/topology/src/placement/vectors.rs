//! The peers' placement vectors (`numaplacement`): for every container the one zone it sits in.
//!
//! In: hashes of containers with their zones, and the number of zones of the node. Out: a text for the node and one for
//! each zone that needs it; and back. Never: a text for what the form cannot say (ids beyond the number of zones, two
//! containers of one hash), nor a guess at the meaning of a malformed text.
//!
//! # Form
//! The hashes of the node's containers, in ascending order, number the containers: their offsets. The zone with most
//! containers (of equals, the lowest id) is the busiest and has no text. Every other zone with containers lists their
//! offsets in [`super::leb89`]: the first as it is, each further one as the distance to the one before. A container in
//! no list is in the busiest zone. The node's text has the numbers of containers (`cc`) and zones (`nn`) and the
//! busiest zone (`bn`): `npv0v001::ve=leb89::cc=5::nn=2::bn=1`.

use super::leb89::{self, Leb89Error};
use super::{ContainerHash, shorten};
use crate::zone::ZoneId;

/// Prefix, version and the separator after them.
const HEAD: &str = "npv0v001::";
/// The separator between the pairs of the node's text.
const SEPARATOR: &str = "::";
/// The only encoding there is.
const ENCODING: &str = "leb89";

/// Placements in the peers' form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vectors {
    /// The value of the node's attribute `topology.node.k8s.io/numaplacement-metadata`.
    pub metadata: String,
    /// The values of the zones' attribute `topology.node.k8s.io/numaplacement-vector`, ascending by zone; zones that
    /// are not listed have none.
    pub zones: Vec<(ZoneId, String)>,
}

/// Why placements cannot be written or read. The first words of each message are the peers'.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VectorError {
    /// The node's text does not begin with `npv0v001::`.
    #[error("malformed metadata: expected npv0v001:: and key=value pairs between ::")]
    Metadata,
    /// A pair without `=`.
    #[error("malformed metadata pair {0:?}: expected key=value")]
    Pair(String),
    /// A pair that begins with `=`.
    #[error("missing metadata key in {0:?}")]
    Key(String),
    /// A pair that ends with its `=`.
    #[error("missing metadata value in {0:?}")]
    Value(String),
    /// A value that is not a whole number.
    #[error("error while parsing {0:?}: expected a whole number")]
    Number(String),
    /// A key that is none of `ve`, `cc`, `nn`, `bn`.
    #[error("unknown metadata field {0:?}; allowed are ve, cc, nn, bn")]
    Field(String),
    /// The encoding is missing or another one.
    #[error("unsupported vector encoding {0:?}; allowed is leb89")]
    Encoding(String),
    /// `bn` is missing.
    #[error("unknown busiest node: bn is missing or -1")]
    UnknownBusiest,
    /// `bn` is no zone of the node.
    #[error("inconsistent busiest node data: bn={busiest} with nn={zones}")]
    Busiest {
        /// The value of `bn`.
        busiest: i64,
        /// The number of zones.
        zones: i64,
    },
    /// `nn` is missing or not positive, or the node to be described has no zones.
    #[error("inconsistent NUMA node count: {0}; expected at least 1")]
    Zones(i64),
    /// There are more vectors than zones or containers allow.
    #[error("inconsistent NUMA vector data: {vectors} vectors for {containers} containers in {zones} zones")]
    Vectors {
        /// The number of vectors.
        vectors: usize,
        /// The number of containers.
        containers: i64,
        /// The number of zones.
        zones: i64,
    },
    /// A vector at a zone that cannot have one: the busiest zone, a zone beyond their number, or a zone that has one
    /// already.
    #[error("corrupted NUMA vector: zone {} cannot have one", .0.0)]
    UnexpectedVector(ZoneId),
    /// A vector that is not a list of numbers.
    #[error("corrupted NUMA vector of zone {}: {cause}", zone.0)]
    Text {
        /// The zone of the vector.
        zone: ZoneId,
        /// What is wrong with the text.
        cause: Leb89Error,
    },
    /// A vector names a container that does not exist.
    #[error("corrupted NUMA vector of zone {}: offset {offset} of {containers} containers", zone.0)]
    Offset {
        /// The zone of the vector.
        zone: ZoneId,
        /// The offset in the vector.
        offset: u64,
        /// The number of containers.
        containers: usize,
    },
    /// A container is in two zones, or twice in one.
    #[error("duplicated data in multiple NUMA vectors: offset {offset} again in zone {}", zone.0)]
    Twice {
        /// The zone of the second entry.
        zone: ZoneId,
        /// The container's offset.
        offset: usize,
    },
    /// The reader's containers are not those the text was made of.
    #[error("inconsistent container set: {found} containers, cc={wanted}")]
    Containers {
        /// The number of containers the reader knows.
        found: usize,
        /// The number of containers the writer knew.
        wanted: i64,
    },
    /// A container's zone id is not below the number of zones: the node's ids have gaps, which the form cannot express.
    #[error("wrong NUMA affinity: zone {} of a node with {zones} zones; only ids below that can be written", zone.0)]
    Affinity {
        /// The container's zone.
        zone: ZoneId,
        /// The number of zones of the node.
        zones: u32,
    },
    /// Two containers have the same hash, or one is listed twice: a reader would count one and number the others
    /// wrongly.
    #[error("inconsistent container set: two containers have the hash {:016x}", .0.0)]
    Collision(ContainerHash),
}

/// Writes placements. `zones` is the number of zones of the node, whatever their ids.
///
/// # Errors
/// [`VectorError::Affinity`] when a container's zone id is not below `zones`; [`VectorError::Collision`];
/// [`VectorError::Zones`] for a node without zones.
pub fn encode(mut containers: Vec<(ContainerHash, ZoneId)>, zones: u32) -> Result<Vectors, VectorError> {
    if zones == 0 {
        return Err(VectorError::Zones(0));
    }
    if let Some((_, zone)) = containers.iter().find(|(_, zone)| zone.0 >= zones) {
        return Err(VectorError::Affinity { zone: *zone, zones });
    }
    containers.sort_unstable();
    if let Some(pair) = containers.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(VectorError::Collision(pair[0].0));
    }
    let mut lists: Vec<(ZoneId, OffsetList)> = Vec::new();
    for (offset, (_, zone)) in (0..).zip(&containers) {
        let at = lists.binary_search_by_key(zone, |(id, _)| *id).unwrap_or_else(|at| {
            lists.insert(at, (*zone, OffsetList::default()));
            at
        });
        lists[at].1.push(offset);
    }
    let most = lists.iter().map(|(_, list)| list.count).max();
    let busiest =
        lists.iter().find(|(_, list)| Some(list.count) == most).map_or(ZoneId(0), |(zone, _)| *zone);
    lists.retain(|(zone, _)| *zone != busiest);
    Ok(Vectors {
        metadata: format!("{HEAD}ve={ENCODING}::cc={}::nn={zones}::bn={}", containers.len(), busiest.0),
        zones: lists.into_iter().map(|(zone, list)| (zone, list.text)).collect(),
    })
}

/// A zone's list of offsets while it grows.
#[derive(Default)]
struct OffsetList {
    text: String,
    count: usize,
    last: u32,
}

impl OffsetList {
    /// Appends an offset; they come in ascending order.
    fn push(&mut self, offset: u32) {
        leb89::write(&mut self.text, offset - self.last);
        self.last = offset;
        self.count += 1;
    }
}

/// Reads placements: the zone of each of `containers`, in their order. These must be all the containers the text was
/// made of; one that is given twice counts once, as with the peers. An empty vector stands for no containers.
///
/// # Errors
/// When any part contradicts another, in the peers' order of checks. Nothing of the text may be used then.
pub fn decode(
    metadata: &str,
    vectors: &[(ZoneId, &str)],
    containers: &[ContainerHash],
) -> Result<Vec<ZoneId>, VectorError> {
    let metadata = Metadata::parse(metadata)?;
    let busiest = metadata.validate(vectors)?;
    let mut hashes = containers.to_vec();
    hashes.sort_unstable();
    hashes.dedup();
    if i64::try_from(hashes.len()) != Ok(metadata.containers) {
        return Err(VectorError::Containers { found: hashes.len(), wanted: metadata.containers });
    }
    let mut zones: Vec<Option<ZoneId>> = vec![None; hashes.len()];
    for (zone, text) in vectors {
        assign(*zone, text, &mut zones)?;
    }
    let zone = |hash| hashes.binary_search(hash).ok().and_then(|at| zones.get(at).copied().flatten());
    Ok(containers.iter().map(|hash| zone(hash).unwrap_or(busiest)).collect())
}

/// Assigns the containers of one zone's vector to that zone.
fn assign(zone: ZoneId, text: &str, zones: &mut [Option<ZoneId>]) -> Result<(), VectorError> {
    let containers = zones.len();
    let mut offset = 0_u64;
    for distance in leb89::read(text) {
        offset += u64::from(distance.map_err(|cause| VectorError::Text { zone, cause })?);
        let at = usize::try_from(offset).ok().filter(|at| *at < containers);
        let at = at.ok_or(VectorError::Offset { zone, offset, containers })?;
        if zones[at].replace(zone).is_some() {
            return Err(VectorError::Twice { zone, offset: at });
        }
    }
    Ok(())
}

/// The node's text. A missing number is -1 and a missing encoding is empty, as with the peers.
struct Metadata {
    encoding: String,
    containers: i64,
    zones: i64,
    busiest: i64,
}

impl Metadata {
    fn parse(text: &str) -> Result<Self, VectorError> {
        let pairs = text.strip_prefix(HEAD).ok_or(VectorError::Metadata)?;
        let mut metadata = Self { encoding: String::new(), containers: -1, zones: -1, busiest: -1 };
        for pair in pairs.split(SEPARATOR) {
            let (key, value) = pair.split_once('=').ok_or_else(|| VectorError::Pair(shorten(pair)))?;
            if key.is_empty() {
                return Err(VectorError::Key(shorten(pair)));
            }
            if value.is_empty() {
                return Err(VectorError::Value(shorten(pair)));
            }
            if key == "ve" {
                metadata.encoding = shorten(value);
                continue;
            }
            let number = value.parse().map_err(|_| VectorError::Number(shorten(pair)))?;
            match key {
                "cc" => metadata.containers = number,
                "nn" => metadata.zones = number,
                "bn" => metadata.busiest = number,
                _ => return Err(VectorError::Field(shorten(key))),
            }
        }
        Ok(metadata)
    }

    /// Checks whether the text and the vectors can belong together; returns the busiest zone.
    fn validate(&self, vectors: &[(ZoneId, &str)]) -> Result<ZoneId, VectorError> {
        let &Self { containers, zones, busiest, .. } = self;
        if self.encoding != ENCODING {
            return Err(VectorError::Encoding(self.encoding.clone()));
        }
        if busiest == -1 {
            return Err(VectorError::UnknownBusiest);
        }
        let known = u32::try_from(busiest).ok().map(ZoneId).filter(|_| busiest < zones);
        let busiest = known.ok_or(VectorError::Busiest { busiest, zones })?;
        let many = VectorError::Vectors { vectors: vectors.len(), containers, zones };
        if i64::try_from(vectors.len()).is_ok_and(|count| count >= zones) {
            return Err(many);
        }
        if vectors.iter().any(|(zone, _)| *zone == busiest) {
            return Err(VectorError::UnexpectedVector(busiest));
        }
        if containers < 0 {
            return Err(VectorError::Containers { found: 0, wanted: containers });
        }
        if containers == 0 && !vectors.is_empty() {
            return Err(many);
        }
        let mut ids: Vec<_> = vectors.iter().map(|(zone, _)| *zone).collect();
        ids.sort_unstable();
        let twice = ids.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        match twice.or(ids.last().copied().filter(|zone| i64::from(zone.0) >= zones)) {
            Some(zone) => Err(VectorError::UnexpectedVector(zone)),
            None => Ok(busiest),
        }
    }
}

#[cfg(test)]
mod tests;
