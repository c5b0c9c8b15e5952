//! A schema as a table of types: the fields of a record in their order, and the type of column for each.

/// A type. Types that it is made of are named by their places in the table, which are before its own.
pub enum Node {
    Null,
    Boolean,
    /// 32 bits, if it is `small`, or 64.
    Integer {
        small: bool,
        unit: Unit,
    },
    Float,
    Double,
    /// Bytes, so many at most; `made`: something else is made of them.
    Bytes {
        most: usize,
        made: bool,
    },
    /// So many bytes.
    Fixed {
        size: usize,
        made: bool,
    },
    Text,
    /// A text that becomes bytes.
    TextAsBytes,
    /// The symbols; a value that has none is left to Python.
    Enum(Vec<Option<Vec<u8>>>),
    Array(usize),
    Map(usize),
    Union(Vec<usize>),
    Record(Vec<Field>),
    /// A type whose values are all left to Python.
    Refused,
}

/// The value that an integer is read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    One,
    /// Days to milliseconds.
    Days,
    /// Microseconds and nanoseconds to milliseconds, rounded down: divided by this.
    Parts(i64),
    /// A float.
    Real,
}

pub struct Field {
    pub node: usize,
    /// Its key; `None` if it is passed over.
    pub key: Option<Vec<u8>>,
}

/// Milliseconds.
pub const DAY: i64 = 86_400_000;

/// Levels of types in types. Records are read by recursion.
const MOST_DEPTH: usize = 200;

pub struct Program {
    nodes: Vec<Node>,
}

impl Program {
    /// The types, the last of which is that of the records. `None` if a type is made of others than those before it, if
    /// they are nested too deeply, or if records are no records.
    pub fn of(nodes: Vec<Node>) -> Option<Program> {
        let mut depths: Vec<usize> = Vec::with_capacity(nodes.len());
        for node in &nodes {
            let inner: Vec<usize> = match node {
                Node::Array(place) | Node::Map(place) => vec![*place],
                Node::Union(branches) => branches.clone(),
                Node::Record(fields) => fields.iter().map(|field| field.node).collect(),
                _ => Vec::new(),
            };
            let depth = inner.iter().try_fold(0, |most: usize, place| {
                depths.get(*place).map(|depth| most.max(*depth))
            });
            depths.push(depth.filter(|depth| *depth < MOST_DEPTH)? + 1);
        }
        matches!(nodes.last(), Some(Node::Record(_))).then_some(Program { nodes })
    }

    #[inline(always)]
    pub fn node(&self, place: usize) -> &Node {
        &self.nodes[place]
    }

    /// The fields of the records.
    pub fn fields(&self) -> &[Field] {
        match self.nodes.last() {
            Some(Node::Record(fields)) => fields,
            _ => &[],
        }
    }
}

impl Unit {
    /// The bits of the value for this integer: those of an integer, or with `Real` of a float.
    #[inline(always)]
    pub fn bits(self, value: i64) -> u64 {
        match self {
            Unit::One => value as u64,
            // Days have 32 bits.
            Unit::Days => value.wrapping_mul(DAY) as u64,
            Unit::Parts(parts) => value.div_euclid(parts) as u64,
            Unit::Real => (value as f64).to_bits(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_in_which_types_contain_themselves_is_none() {
        let record = |node| Node::Record(vec![Field { node, key: None }]);
        assert!(Program::of(vec![Node::Null, record(0)]).is_some());
        assert!(Program::of(vec![record(0)]).is_none());
        assert!(Program::of(vec![Node::Array(1), Node::Null, record(0)]).is_none());
        assert!(Program::of(vec![Node::Null]).is_none());
        assert!(Program::of(vec![]).is_none());
        let mut deep = vec![Node::Null];
        deep.extend((0..1000).map(Node::Array));
        deep.push(record(1000));
        assert!(Program::of(deep).is_none());
    }

    #[test]
    fn times_are_rounded_down() {
        assert_eq!(Unit::Parts(1000).bits(-1) as i64, -1);
        assert_eq!(Unit::Parts(1000).bits(1999) as i64, 1);
        assert_eq!(Unit::Days.bits(-1) as i64, -86_400_000);
        assert_eq!(f64::from_bits(Unit::Real.bits(-3)), -3.0);
    }
}
