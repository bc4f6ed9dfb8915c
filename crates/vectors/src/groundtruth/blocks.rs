//! Many queries against blocks of vectors: a 32-bit kernel screens out the pairs that are certainly too far.

use super::exact::{limit, norm, row_terms};
use super::tile::{LANES, Packer, Panel, PanelTerms, QueryTile, Side, TileIsa, screen};
use bathyal_kernels::{Element, Metric, to_f32};

/// The most that 32-bit distances, with sums in any order, differ from exact ones: in roundings for each
/// dimension, and a few more. A cosine has three sums.
const ROUNDINGS_A_DIM: usize = 2;
const FEW_ROUNDINGS: usize = 16;

/// Queries that are compared with blocks of vectors ([`RowPanels`]), in tiles of [`QueryTiles::LANES`].
pub struct QueryTiles {
    metric: Metric,
    rows: Element,
    dim: usize,
    isa: TileIsa,
    /// Roundings of the product of two vectors, and of the distances that decide.
    roundings: usize,
    /// The greatest relative error of a distance that decides, beside that of the product.
    error: f64,
    query: Element,
    packer: Packer,
    values: Vec<f32>,
    tiles: Vec<QueryTile>,
    norms: Vec<f64>,
}

/// A packed block of vectors. Its memory is reused from block to block.
pub struct RowPanels {
    metric: Metric,
    element: Element,
    packer: Packer,
    values: Vec<f32>,
    cells_a_panel: usize,
    cells: Vec<u32>,
    panels: Vec<PanelTerms>,
    count: usize,
    /// Length of the longest vector of the block.
    longest: f64,
}

impl QueryTiles {
    /// Queries of a tile, and the largest number of vectors that are compared at a time.
    pub const LANES: usize = LANES;

    /// Creates an empty list of queries of the element `query`, for vectors of the element `rows`. The
    /// distances that decide are those of [`bathyal_kernels::Distance`].
    pub fn new(metric: Metric, query: Element, rows: Element, dim: usize) -> QueryTiles {
        // Pairs of unlike elements are multiplied as floats.
        let isa = TileIsa::best(if query == rows { rows } else { Element::F32 }, dim);
        let own = ROUNDINGS_A_DIM * dim + FEW_ROUNDINGS;
        let tiles = QueryTiles::with_isa(metric, (query, rows), dim, isa);
        let error = own as f64 * f64::from(f32::EPSILON);
        QueryTiles { roundings: tiles.roundings + own, error, ..tiles }
    }

    /// Creates an empty list for distances that are rounded once.
    pub(super) fn with_isa(
        metric: Metric,
        (query, rows): (Element, Element),
        dim: usize,
        isa: TileIsa,
    ) -> QueryTiles {
        QueryTiles {
            metric,
            rows,
            dim,
            isa,
            roundings: isa.roundings(dim),
            error: 0.0,
            query,
            packer: Packer::new(isa, query, dim),
            values: vec![0.0; dim],
            tiles: Vec::new(),
            norms: Vec::new(),
        }
    }

    /// Returns the bytes of memory of a query, for a list whose length is a multiple of
    /// [`QueryTiles::LANES`].
    pub fn query_bytes(&self) -> usize {
        self.isa.steps(self.dim) * size_of::<u32>() + size_of::<f64>() + size_of::<QueryTile>() / LANES + 1
    }

    /// Returns the bytes of memory of a vector in a block.
    pub fn row_bytes(&self) -> usize {
        self.isa.steps(self.dim) * size_of::<u32>() + size_of::<PanelTerms>() / LANES + 1
    }

    /// Allocates memory for `count` queries in all.
    pub fn reserve(&mut self, count: usize) {
        self.tiles.reserve_exact(count.div_ceil(LANES));
        self.norms.reserve_exact(count);
    }

    /// Adds a query. Returns its Euclidean length.
    pub fn push(&mut self, query: &[u8]) -> f64 {
        let lane = self.norms.len() % LANES;
        if lane == 0 {
            let cells = vec![0; self.isa.steps(self.dim) * LANES];
            self.tiles.push(QueryTile { cells, offset: [0; LANES], count: 0 });
        }
        to_f32(self.query, query, &mut self.values);
        let length = norm(&self.values);
        self.norms.push(length);
        if let Some(tile) = self.tiles.last_mut() {
            tile.offset[lane] = self.packer.pack(Side::Query, query, lane, &mut tile.cells);
            tile.count = lane + 1;
        }
        length
    }

    /// Returns the number of tiles.
    pub fn tiles(&self) -> usize {
        self.tiles.len()
    }

    /// Creates an empty block of up to `rows` vectors.
    pub fn block(&self, rows: usize) -> RowPanels {
        let (panels, cells_a_panel) = (rows.div_ceil(LANES), self.isa.steps(self.dim) * LANES);
        RowPanels {
            metric: self.metric,
            element: self.rows,
            packer: Packer::new(self.isa, self.rows, self.dim),
            values: vec![0.0; self.dim],
            cells_a_panel,
            cells: vec![0; panels * cells_a_panel],
            panels: Vec::with_capacity(panels),
            count: 0,
            longest: 0.0,
        }
    }

    /// Returns the length of a query.
    pub(super) fn norm(&self, query: usize) -> f64 {
        self.norms[query]
    }

    /// Compares the queries of one tile with a block. `farthest` returns the largest distance of a vector
    /// that is still of interest to a query. `near` is called with each query, the number of a vector in the
    /// block, and the mask of those of the [`QueryTiles::LANES`] vectors from this one on that may be as
    /// near; it returns the largest distance that is of interest from then on.
    pub fn compare(
        &self,
        tile: usize,
        block: &RowPanels,
        farthest: impl Fn(usize) -> f32,
        mut near: impl FnMut(usize, usize, u16) -> f32,
    ) {
        let (first, tile) = (tile * LANES, &self.tiles[tile]);
        let mut limits = [f32::NEG_INFINITY; LANES];
        for (lane, limit) in limits[..tile.count].iter_mut().enumerate() {
            *limit = self.limit(first + lane, block, farthest(first + lane));
        }
        for (at, terms) in block.panels.iter().enumerate() {
            let cells = &block.cells[at * block.cells_a_panel..][..block.cells_a_panel];
            let masks = screen(self.isa, Panel { cells, terms }, tile, &limits);
            if masks == [0; LANES] {
                continue;
            }
            for (lane, mask) in masks[..tile.count].iter().enumerate() {
                if *mask != 0 {
                    let farthest = near(first + lane, at * LANES, *mask);
                    limits[lane] = self.limit(first + lane, block, farthest);
                }
            }
        }
    }

    /// Returns the largest value that a vector of a block may have for a query (see [`limit`]).
    fn limit(&self, query: usize, block: &RowPanels, farthest: f32) -> f32 {
        let farthest = match self.error {
            0.0 => farthest,
            error => (f64::from(farthest) + error * f64::from(farthest.abs())) as f32,
        };
        limit(self.metric, self.roundings, self.norms[query], block.longest, farthest)
    }
}

impl RowPanels {
    /// Removes all vectors.
    pub fn clear(&mut self) {
        self.panels.clear();
        (self.count, self.longest) = (0, 0.0);
    }

    /// Returns the number of vectors.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if there are no vectors.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a vector. A block without space for it grows. Returns its Euclidean length.
    pub fn push(&mut self, row: &[u8]) -> f64 {
        let (panel, lane) = (self.count / LANES, self.count % LANES);
        if lane == 0 {
            self.panels.push(PanelTerms {
                bias: [0.0; LANES],
                scale: [0.0; LANES],
                offset: [0; LANES],
                valid: 0,
            });
        }
        to_f32(self.element, row, &mut self.values);
        let norm = norm(&self.values);
        self.longest = self.longest.max(norm);
        let end = (panel + 1) * self.cells_a_panel;
        if self.cells.len() < end {
            self.cells.resize(end, 0);
        }
        let (terms, cells) = (&mut self.panels[panel], &mut self.cells[panel * self.cells_a_panel..]);
        (terms.bias[lane], terms.scale[lane]) = row_terms(self.metric, norm);
        terms.offset[lane] = self.packer.pack(Side::Base, row, lane, &mut cells[..self.cells_a_panel]);
        terms.valid |= 1 << lane;
        self.count += 1;
        norm
    }
}

/// The smallest distance beyond which a vector is of no interest to each query, as several threads find it.
pub struct Farthest(Vec<std::sync::atomic::AtomicU32>);

impl Farthest {
    /// Creates the infinite distances of `count` queries.
    pub fn new(count: usize) -> Farthest {
        let far = || ordered_bits(f32::INFINITY).into();
        Farthest(std::iter::repeat_with(far).take(count).collect())
    }

    /// Returns the distance of a query.
    #[inline]
    pub fn get(&self, query: usize) -> f32 {
        from_ordered_bits(self.0[query].load(std::sync::atomic::Ordering::Relaxed))
    }

    /// Lowers the distance of a query to `distance`, which is not NaN, and returns the result.
    #[inline]
    pub fn lower(&self, query: usize, distance: f32) -> f32 {
        let bits = ordered_bits(distance);
        from_ordered_bits(self.0[query].fetch_min(bits, std::sync::atomic::Ordering::Relaxed).min(bits))
    }
}

/// Maps a float that is not NaN to bits that have the order of the floats.
fn ordered_bits(value: f32) -> u32 {
    let bits = value.to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

/// Inverts [`ordered_bits`].
fn from_ordered_bits(bits: u32) -> f32 {
    f32::from_bits(if bits >> 31 == 1 { bits & !(1 << 31) } else { !bits })
}
