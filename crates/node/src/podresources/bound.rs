//! Bounds the memory of an answer before it is decoded: a message of two bytes may become a structure of a hundred.
//!
//! In: an encoded answer. Out: the decoded one, if that takes no more than the limit. Never: a decoded message that was
//! not counted.

use std::marker::PhantomData;

use prost::Message;
use prost::bytes::Buf;
use prost::encoding::{WireType, decode_key, decode_varint};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstCodec;

use super::wire;

/// The most bytes of a decoded answer; one of 500 pods with 8 devices each takes some 2 MiB. An answer of long names
/// takes what it takes encoded, and a little more.
pub(super) const MAX_DECODED_BYTES: usize = 32 << 20;

/// A message that the kubelet answers with.
pub(super) trait Answer: Message + Default + 'static {
    /// What it consists of.
    const SHAPE: &'static Shape;
}

impl Answer for wire::ListPodResourcesResponse {
    const SHAPE: &'static Shape = &LIST;
}

impl Answer for wire::AllocatableResourcesResponse {
    const SHAPE: &'static Shape = &ALLOCATABLE;
}

/// What a message consists of.
#[derive(Debug)]
pub(super) struct Shape {
    /// The size of the structure, where each message has a structure of its own.
    bytes: usize,
    /// Fields that take memory of their own, by number.
    fields: &'static [(u32, Field)],
}

#[derive(Debug)]
enum Field {
    Message(&'static Shape),
    Text,
    Texts,
    Numbers,
}

use Field::{Numbers, Text, Texts};

static LIST: Shape = shape::<wire::ListPodResourcesResponse>(&[(1, Field::Message(&POD))]);
static POD: Shape = shape::<wire::PodResources>(&[(1, Text), (2, Text), (3, Field::Message(&CONTAINER))]);
static CONTAINER: Shape = shape::<wire::ContainerResources>(&[
    (1, Text),
    (2, Field::Message(&DEVICES)),
    (3, Numbers),
    (4, Field::Message(&MEMORY)),
    (5, Field::Message(&DYNAMIC)),
]);
static ALLOCATABLE: Shape = shape::<wire::AllocatableResourcesResponse>(&[
    (1, Field::Message(&DEVICES)),
    (2, Numbers),
    (3, Field::Message(&MEMORY)),
]);
static DEVICES: Shape =
    shape::<wire::ContainerDevices>(&[(1, Text), (2, Texts), (3, Field::Message(&TOPOLOGY))]);
static MEMORY: Shape = shape::<wire::ContainerMemory>(&[(1, Text), (3, Field::Message(&TOPOLOGY))]);
// A part of its parent's structure.
static TOPOLOGY: Shape = Shape { bytes: 0, fields: &[(1, Field::Message(&NUMA_NODE))] };
static NUMA_NODE: Shape = shape::<wire::NumaNode>(&[]);
static DYNAMIC: Shape =
    shape::<wire::DynamicResource>(&[(2, Text), (3, Text), (4, Field::Message(&CLAIM_RESOURCE))]);
static CLAIM_RESOURCE: Shape = shape::<wire::ClaimResource>(&[
    (1, Field::Message(&CDI_DEVICE)),
    (2, Text),
    (3, Text),
    (4, Text),
    (5, Text),
]);
static CDI_DEVICE: Shape = shape::<wire::CdiDevice>(&[(1, Text)]);

const fn shape<T>(fields: &'static [(u32, Field)]) -> Shape {
    Shape { bytes: size_of::<T>(), fields }
}

/// The bytes that may still be taken.
#[derive(Debug)]
struct Budget(usize);

/// The answer takes more than the budget.
#[derive(Debug, PartialEq, Eq)]
struct Exceeded;

impl Budget {
    fn take(&mut self, bytes: usize) -> Result<(), Exceeded> {
        self.0 = self.0.checked_sub(bytes).ok_or(Exceeded)?;
        Ok(())
    }

    /// Takes what a message needs. A malformed one is taken up to the mistake, where decoding ends too.
    fn message(&mut self, shape: &Shape, mut bytes: &[u8]) -> Result<(), Exceeded> {
        self.take(shape.bytes)?;
        while !bytes.is_empty() {
            let Ok((number, kind)) = decode_key(&mut bytes) else { return Ok(()) };
            let field = shape.fields.iter().find(|(known, _)| *known == number).map(|(_, field)| field);
            let length = match kind {
                WireType::Varint => {
                    if decode_varint(&mut bytes).is_err() {
                        return Ok(());
                    }
                    self.take(size_of::<i64>())?;
                    continue;
                }
                WireType::SixtyFourBit => Some(8),
                WireType::ThirtyTwoBit => Some(4),
                WireType::LengthDelimited => {
                    decode_varint(&mut bytes).ok().and_then(|n| usize::try_from(n).ok())
                }
                // No kubelet sends groups.
                WireType::StartGroup | WireType::EndGroup => return Err(Exceeded),
            };
            let Some((content, rest)) = length.and_then(|length| bytes.split_at_checked(length)) else {
                return Ok(());
            };
            bytes = rest;
            match field {
                Some(Field::Message(shape)) => self.message(shape, content)?,
                Some(Text) => self.take(content.len())?,
                Some(Texts) => self.take(content.len() + size_of::<String>())?,
                Some(Numbers) => {
                    let ends = content.iter().filter(|byte| **byte < 0x80).count();
                    self.take(ends * size_of::<i64>())?;
                }
                None => {}
            }
        }
        Ok(())
    }
}

/// Decodes answers within the limit.
#[derive(Debug)]
pub(super) struct BoundedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for BoundedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message + 'static, U: Answer> Codec for BoundedCodec<T, U> {
    type Encode = T;
    type Decode = U;
    type Encoder = <ProstCodec<T, U> as Codec>::Encoder;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder(ProstCodec::<T, U>::default().decoder())
    }
}

/// Counts, then decodes.
#[derive(Debug)]
pub(super) struct BoundedDecoder<U>(tonic_prost::ProstDecoder<U>);

impl<U: Answer> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // The buffer is one piece; if it were not, the rest would not be counted.
        let whole = buffer.chunk().len() == buffer.remaining();
        if !whole || Budget(MAX_DECODED_BYTES).message(U::SHAPE, buffer.chunk()).is_err() {
            let limit = MAX_DECODED_BYTES >> 20;
            return Err(Status::resource_exhausted(format!(
                "the answer takes more than {limit} MiB of memory"
            )));
        }
        self.0.decode(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken<U: Answer>(bytes: &[u8]) -> Option<usize> {
        let mut budget = Budget(MAX_DECODED_BYTES);
        budget.message(U::SHAPE, bytes).ok().map(|()| MAX_DECODED_BYTES - budget.0)
    }

    /// What a decoded container holds, the room of its lists left out.
    fn held(container: &wire::ContainerResources) -> usize {
        let nodes = |topology: &Option<wire::TopologyInfo>| {
            // A number is counted beside the structure that has it.
            topology.as_ref().map_or(0, |topology| topology.nodes.len() * (size_of::<wire::NumaNode>() + 8))
        };
        let devices = container.devices.iter().map(|one| {
            let ids: usize = one.device_ids.iter().map(|id| size_of::<String>() + id.len()).sum();
            size_of::<wire::ContainerDevices>() + one.resource_name.len() + ids + nodes(&one.topology)
        });
        let memory = container
            .memory
            .iter()
            .map(|one| size_of::<wire::ContainerMemory>() + one.memory_type.len() + 8 + nodes(&one.topology));
        let lists = devices.sum::<usize>() + memory.sum::<usize>() + container.cpu_ids.len() * 8;
        size_of::<wire::ContainerResources>() + container.name.len() + lists
    }

    #[test]
    fn what_decoding_takes_is_counted_before() {
        let topology = |zones: i64| {
            Some(wire::TopologyInfo { nodes: (1..=zones).map(|id| wire::NumaNode { id }).collect() })
        };
        for (containers, cpus, devices, zones) in
            [(0_usize, 0_i64, 0_usize, 0_i64), (1, 1, 1, 1), (3, 300, 0, 2), (70, 5, 8, 3)]
        {
            let devices = wire::ContainerDevices {
                resource_name: "example.com/nic".to_owned(),
                device_ids: (0..devices).map(|number| format!("nic-{number}")).collect(),
                topology: topology(zones),
            };
            let memory = wire::ContainerMemory {
                memory_type: "memory".to_owned(),
                size: 1 << 30,
                topology: topology(zones),
            };
            let container = wire::ContainerResources {
                name: "main".to_owned(),
                devices: vec![devices; 2],
                cpu_ids: (0..cpus).collect(),
                memory: vec![memory],
                dynamic_resources: Vec::new(),
            };
            let pod = wire::PodResources {
                name: "pod".to_owned(),
                namespace: "default".to_owned(),
                containers: vec![container.clone(); containers],
            };
            let answer = wire::ListPodResourcesResponse { pod_resources: vec![pod; 2] };
            let wanted = size_of_val(&answer)
                + 2 * (size_of::<wire::PodResources>() + "poddefault".len() + containers * held(&container));
            let bytes = answer.encode_to_vec();
            assert_eq!(taken::<wire::ListPodResourcesResponse>(&bytes), Some(wanted), "{containers}");
        }
    }

    #[test]
    fn small_answers_that_become_large_ones_are_refused() {
        let message = |number: u8, content: &[u8]| {
            let mut bytes = vec![number << 3 | 2];
            prost::encoding::encode_varint(content.len() as u64, &mut bytes);
            [bytes, content.to_vec()].concat()
        };
        let many = |bytes: &[u8]| bytes.repeat((15 << 20) / bytes.len());
        let pod = |content: &[u8]| message(1, content);
        for (name, bytes) in [
            ("empty containers", pod(&many(&message(3, b"")))),
            ("empty pods", many(&pod(b""))),
            ("CPUs", pod(&message(3, &message(3, &many(&[1]))))),
            ("CPUs one by one", pod(&message(3, &many(&[3 << 3, 1])))),
            ("empty ids of devices", pod(&message(3, &message(2, &many(&message(2, b"")))))),
            ("zones", pod(&message(3, &message(4, &message(3, &many(&message(1, b""))))))),
            ("claims", pod(&message(3, &many(&message(5, b""))))),
            ("a group", vec![9 << 3 | 3, 9 << 3 | 4]),
        ] {
            assert_eq!(taken::<wire::ListPodResourcesResponse>(&bytes), None, "{name}");
        }
        assert_eq!(taken::<wire::AllocatableResourcesResponse>(&message(2, &many(&[1]))), None);
        let text = message(1, &vec![b'x'; 1 << 20]);
        let rest = taken::<wire::ListPodResourcesResponse>(&[pod(&text), vec![0xff; 20]].concat()).unwrap();
        assert!(rest > 1 << 20 && rest < 2 << 20, "decoding reports what is malformed: {rest}");
    }
}
