//! The other direction: keys and values of new tokens go into their cells.

use super::check_alignment;
use crate::cell::{BLOCK_CELLS, CellLayout, CellType};
use crate::error::{Error, length};
use crate::isa::KernelSet;
use crate::pool::{Parts, Pool, n_jobs};

/// Floats that are worth a job.
const LEAST_WORK: usize = 1 << 14;

/// Stores keys `[n_tokens, n_head_kv * d_k]` and values `[n_tokens, n_head_kv * d_v]` of new tokens into one layer's
/// `cache`, rounded to nearest even.
///
/// `cell` tells block and cell of token i; cells of several tokens must differ, or some are lost. Allocates nothing.
///
/// # Errors
/// [`Error::Length`] for slices that do not fit each other, [`Error::Alignment`] for a cache that does not start at a
/// multiple of 64 bytes, [`Error::Block`] or [`Error::Length`] for a block that the cache does not have or a cell above 31:
/// nothing was written then. [`Error::Panicked`] from the pool.
pub fn store(
    set: &KernelSet,
    pool: &dyn Pool,
    layout: &CellLayout,
    k: &[f32],
    v: &[f32],
    cell: &(dyn Fn(usize) -> (u32, u32) + Sync),
    cache: &mut [u8],
) -> Result<(), Error> {
    let (k_width, v_width) = (layout.n_head_kv * layout.d_k, layout.n_head_kv * layout.d_v);
    let block_bytes = layout.block_bytes();
    let n_tokens = k.len().checked_div(k_width).unwrap_or(0);
    length("keys", k.len(), n_tokens * k_width)?;
    length("values", v.len(), n_tokens * v_width)?;
    check_alignment(cache)?;
    layout.check()?;
    let n_blocks = cache.len() / block_bytes.max(1);
    for (block, cell) in (0..n_tokens).map(cell) {
        if block as usize >= n_blocks {
            return Err(Error::Block { found: block, n_blocks });
        }
        if cell as usize >= BLOCK_CELLS {
            return Err(Error::Length {
                what: "cell in its block",
                found: cell as usize,
                wanted: BLOCK_CELLS,
            });
        }
    }
    // Blocks that one run of tokens fills are usually neighbours: only the range that is written is shared out, in several
    // parts a thread. A part is unrelated to the tokens' order: each job looks for those that fall into its own.
    let blocks = || (0..n_tokens).map(|i| cell(i).0 as usize);
    let (low, high) = (blocks().min().unwrap_or(0), blocks().max().map_or(0, |block| block + 1));
    let n_jobs = n_jobs(pool, k.len() + v.len(), LEAST_WORK);
    let parts = Parts::new(&mut cache[low * block_bytes..high * block_bytes], block_bytes, n_jobs);
    pool.run(n_jobs, &|job| {
        let Some((first, part)) = parts.take(job) else { return };
        for (i, (block, cell)) in (0..n_tokens).map(|i| (i, cell(i))) {
            let start = (block as usize * block_bytes).checked_sub(low * block_bytes + first);
            let block = start.and_then(|start| part.get_mut(start..start + block_bytes));
            if let Some(block) = block {
                put_keys(set, layout, block, cell as usize, &k[i * k_width..][..k_width]);
                put_values(set, layout, block, cell as usize, &v[i * v_width..][..v_width]);
            }
        }
    })?;
    Ok(())
}

type Encode = fn(&[f32], &mut [u16]);

/// How elements of two bytes are made; none for the other types.
fn encoder(set: &KernelSet, stored: CellType) -> Option<Encode> {
    match stored {
        CellType::F16 => Some(set.encode_f16),
        CellType::BF16 => Some(set.encode_bf16),
        CellType::F32 | CellType::Q8_0 | CellType::Q4_0 => None,
    }
}

/// The keys of one token, `[n_head_kv, d_k]`, into one column of each head's panel.
fn put_keys(set: &KernelSet, layout: &CellLayout, block: &mut [u8], cell: usize, row: &[f32]) {
    let Some(encode) = encoder(set, layout.k_type) else { return layout.store_k(block, cell, row) };
    for (head, row) in row.chunks_exact(layout.d_k.max(1)).enumerate() {
        let panel: &mut [u16] =
            bytemuck::try_cast_slice_mut(&mut block[layout.k_range(0, head)]).unwrap_or_default();
        let mut bits = [0; 64];
        for (panel, row) in panel.chunks_mut(64 * BLOCK_CELLS).zip(row.chunks(64)) {
            encode(row, &mut bits);
            for (column, x) in panel.chunks_exact_mut(BLOCK_CELLS).zip(&bits[..row.len()]) {
                column[cell] = *x;
            }
        }
    }
}

/// The values of one token, `[n_head_kv, d_v]`, into one row of each head's part.
fn put_values(set: &KernelSet, layout: &CellLayout, block: &mut [u8], cell: usize, row: &[f32]) {
    let Some(encode) = encoder(set, layout.v_type) else { return layout.store_v(block, cell, row) };
    for (head, row) in row.chunks_exact(layout.d_v.max(1)).enumerate() {
        let out = &mut block[layout.v_range(0, head)][cell * 2 * row.len()..][..2 * row.len()];
        encode(row, bytemuck::try_cast_slice_mut(out).unwrap_or_default());
    }
}
