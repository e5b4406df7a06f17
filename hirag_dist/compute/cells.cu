// Trees of merges and mixtures of cells: one block of threads a cell, each for itself from first to last.
//
// Every sum is added up in one order, so that a cell has the same bits whatever the others are. `cells.py` compiles
// this without fused products, since the trees are those of `core.clustering.ward.ward_tree` to the last bit, and defines
// the constants that the mixtures and k-means of the CPU have too.
// Threads of a block meet at barriers alone; the number of threads is a power of two, at most MAX_THREADS.

#define MAX_THREADS 256
#define WIDTH 4           // components of a product that share what is read of a row
#define PART 512          // rows whose products are added up in float32
#define TWO_PI 6.283185307179586
#define FAR 1e308         // above every distance
#define LOWEST -3e38f

// Return the sum of a value of each thread, to each thread.
__device__ double block_sum(double value) {
    __shared__ double values[MAX_THREADS];
    values[threadIdx.x] = value;
    __syncthreads();
    for (int half = blockDim.x / 2; half; half /= 2) {
        if (threadIdx.x < half) values[threadIdx.x] += values[threadIdx.x + half];
        __syncthreads();
    }
    double sum = values[0];
    __syncthreads();
    return sum;
}

// Merge the rows of each set by Ward's criterion, by chains of nearest neighbours: `core.clustering.ward._chained_merges`.
//
// first: (n_sets + 1,) the first row of each set. pairs: (n_sets,) its first place in `apart`.
// columns: (n_dims, n_total) rows, transposed. sizes: (n_total,) rows that each stands for; overwritten.
// apart: (n², of each set,) and chain: (n_total,) are working memory. merges: (n_total, 3) places and distance.
extern "C" __global__ void merge_rows(
    const long long* first, const long long* pairs, const double* columns, double* sizes, int n_dims, long long n_total,
    double* apart, int* chain, double* merges
) {
    __shared__ double least_of[MAX_THREADS];
    __shared__ int place_of[MAX_THREADS];
    const int thread = threadIdx.x, n_threads = blockDim.x;
    const long long begin = first[blockIdx.x];
    const int n_rows = (int)(first[blockIdx.x + 1] - begin);
    columns += begin; sizes += begin; chain += begin; merges += 3 * begin; apart += pairs[blockIdx.x];

    for (int one = 0; one < n_rows; one++) {
        for (int other = thread; other < n_rows; other += n_threads) {
            double sum = 0.0;
            for (int axis = 0; axis < n_dims; axis++) {
                double step = columns[axis * n_total + one] - columns[axis * n_total + other];
                sum += step * step;
            }
            double share = 2.0 * (sizes[one] * sizes[other]) / (sizes[one] + sizes[other]);
            apart[(long long)one * n_rows + other] = sqrt(sum) * sqrt(share);
        }
    }
    __syncthreads();

    int length = 0, lowest = 0;
    for (int step = 0; step < n_rows - 1; step++) {
        if (length == 0) {
            while (sizes[lowest] == 0.0) lowest++;  // merged into a later place
            if (thread == 0) chain[0] = lowest;
            length = 1;
            __syncthreads();
        }
        int last, nearest;
        double least;
        while (true) {
            last = chain[length - 1];
            const double* row = apart + (long long)last * n_rows;
            least = FAR;
            nearest = n_rows;
            for (int other = thread; other < n_rows; other += n_threads) {
                if (sizes[other] > 0.0 && other != last && row[other] < least) {
                    least = row[other];
                    nearest = other;
                }
            }
            least_of[thread] = least;
            place_of[thread] = nearest;
            __syncthreads();
            for (int half = n_threads / 2; half; half /= 2) {
                if (thread < half) {
                    double least_there = least_of[thread + half];
                    int there = place_of[thread + half];
                    if (least_there < least_of[thread] || (least_there == least_of[thread] && there < place_of[thread])) {
                        least_of[thread] = least_there;
                        place_of[thread] = there;
                    }
                }
                __syncthreads();
            }
            least = least_of[0];
            nearest = place_of[0];
            int before = length > 1 ? chain[length - 2] : -1;
            bool is_pair = before >= 0 && row[before] <= least;  // of ties the group before wins
            if (is_pair) {
                least = row[before];
                nearest = before;
            }
            if (thread == 0 && !is_pair) chain[length] = nearest;
            __syncthreads();
            if (is_pair) break;
            length++;
        }
        length -= 2;
        int gone = min(last, nearest), kept = max(last, nearest);
        double n_gone = sizes[gone], n_kept = sizes[kept];
        __syncthreads();
        if (thread == 0) {
            merges[3 * step] = gone;
            merges[3 * step + 1] = kept;
            merges[3 * step + 2] = least;
            sizes[gone] = 0.0;
            sizes[kept] = n_gone + n_kept;
        }
        for (int other = thread; other < n_rows; other += n_threads) {
            if (other == gone || other == kept) continue;
            double n_other = sizes[other];
            if (n_other == 0.0) continue;
            double to_gone = apart[(long long)gone * n_rows + other], to_kept = apart[(long long)kept * n_rows + other];
            double share = 1.0 / (n_gone + n_kept + n_other);
            double joined = sqrt(
                (n_other + n_gone) * share * to_gone * to_gone + (n_other + n_kept) * share * to_kept * to_kept
                - n_other * share * least * least
            );
            apart[(long long)other * n_rows + kept] = apart[(long long)kept * n_rows + other] = joined;
        }
        __syncthreads();
    }
}

// A cell with its mixture: `rows` are (n_rows, n_dims), `columns` the same, transposed; components are (n_components, …).
struct Cell {
    int n_rows, n_components, n_dims;
    float *rows, *columns, *lengths, *means;
    double *weights, *sums, *counts;
    float *constants;
    double variance;
};

// Set the addends of components' log densities that do not depend on the row.
__device__ void prepare(const Cell& cell) {
    const double precision = 1.0 / cell.variance;
    for (int one = threadIdx.x; one < cell.n_components; one += blockDim.x) {
        double energy = 0.0;
        for (int axis = 0; axis < cell.n_dims; axis++) {
            double mean = cell.means[one * cell.n_dims + axis];
            energy += mean * mean;
        }
        double constant = log(cell.weights[one]) - 0.5 * (cell.n_dims * log(TWO_PI / precision) + energy * precision);
        cell.constants[one] = cell.weights[one] > 0.0 ? (float)constant : (float)ABSENT;
    }
    __syncthreads();
}

// Write the share of each component in each row, at row * row_step + component * component_step; return the thread's
// part of the log likelihood. Where densities are wanted, what is below the threshold and not the best becomes -1.
__device__ double expect(
    const Cell& cell, float* shares, int row_step, int component_step, float* densities, float threshold
) {
    const float precision = (float)(1.0 / cell.variance), quadratic = (float)(-0.5 / cell.variance);
    double likelihood = 0.0;
    for (int row = threadIdx.x; row < cell.n_rows; row += blockDim.x) {
        float* of_row = shares + (long long)row * row_step;
        float top = LOWEST;
        for (int first = 0; first < cell.n_components; first += WIDTH) {
            float products[WIDTH] = {0.0f};
            const float* means[WIDTH];
            for (int at = 0; at < WIDTH; at++)  // behind the last component it is taken again
                means[at] = cell.means + min(first + at, cell.n_components - 1) * cell.n_dims;
            for (int axis = 0; axis < cell.n_dims; axis++) {
                float value = cell.columns[(long long)axis * cell.n_rows + row];
                for (int at = 0; at < WIDTH; at++) products[at] = fmaf(means[at][axis], value, products[at]);
            }
            for (int at = 0; at < WIDTH && first + at < cell.n_components; at++) {
                float logarithm = products[at] * precision + cell.constants[first + at];
                of_row[(long long)(first + at) * component_step] = logarithm;
                top = fmaxf(top, logarithm);
            }
        }
        float sum = 0.0f, largest = -1.0f;
        int best = 0;
        for (int one = 0; one < cell.n_components; one++) {
            float* share = of_row + (long long)one * component_step;
            *share = expf(fmaxf(*share - top, (float)MIN_LOG_SHARE));
            sum += *share;
            if (*share > largest) {
                largest = *share;
                best = one;
            }
        }
        for (int one = 0; one < cell.n_components; one++) {
            float* share = of_row + (long long)one * component_step;
            *share /= sum;
            if (densities && *share < threshold && one != best) *share = -1.0f;
        }
        float density = top + logf(sum) + cell.lengths[row] * quadratic;
        if (densities) densities[row] = density;
        likelihood += density;
    }
    return likelihood;
}

// Fit the mixture to (n_components, n_rows) shares. freedom: rows less what is estimated.
__device__ void maximise(Cell& cell, const float* shares, double squares, double freedom) {
    const int n_groups = (cell.n_components + WIDTH - 1) / WIDTH;
    for (int task = threadIdx.x; task < n_groups * cell.n_dims; task += blockDim.x) {
        const int axis = task % cell.n_dims, first = task / cell.n_dims * WIDTH;
        const float* of_component[WIDTH];
        for (int at = 0; at < WIDTH; at++)
            of_component[at] = shares + (long long)min(first + at, cell.n_components - 1) * cell.n_rows;
        double sums[WIDTH] = {0.0}, counts[WIDTH] = {0.0};
        for (int begin = 0; begin < cell.n_rows; begin += PART) {
            float products[WIDTH] = {0.0f};
            for (int row = begin; row < min(begin + PART, cell.n_rows); row++) {
                float value = cell.rows[(long long)row * cell.n_dims + axis];
                for (int at = 0; at < WIDTH; at++) {
                    float share = of_component[at][row];
                    products[at] = fmaf(share, value, products[at]);
                    if (axis == 0) counts[at] += share;
                }
            }
            for (int at = 0; at < WIDTH; at++) sums[at] += products[at];
        }
        for (int at = 0; at < WIDTH && first + at < cell.n_components; at++) {
            cell.sums[(first + at) * cell.n_dims + axis] = sums[at];
            if (axis == 0) cell.counts[first + at] = fmax(counts[at], MIN_COUNT);
        }
    }
    __syncthreads();
    double explained = 0.0, n_counted = 0.0;
    for (int at = threadIdx.x; at < cell.n_components * cell.n_dims; at += blockDim.x) {
        double count = cell.counts[at / cell.n_dims], mean = cell.sums[at] / count;
        cell.means[at] = (float)mean;
        explained += count * mean * mean;
    }
    for (int one = threadIdx.x; one < cell.n_components; one += blockDim.x) n_counted += cell.counts[one];
    n_counted = block_sum(n_counted);
    cell.variance = fmax((squares - block_sum(explained)) / (freedom * cell.n_dims), MIN_VARIANCE);
    for (int one = threadIdx.x; one < cell.n_components; one += blockDim.x)
        cell.weights[one] = cell.counts[one] / n_counted;
    __syncthreads();
}

// Fit a mixture to each cell from labels, and find the members of the components that are at home for the larger part:
// `core.clustering.gaussian_mixture.memberships`.
//
// first: (n_cells + 1,) the first row of each cell; components: its first component; pairs: its first place in `shares`.
// rows: (n_total, n_dims) overwritten by the standardised ones. labels, is_home: (n_total,).
// columns: (n_total * n_dims,), shares: (rows × components of each cell,), means, sums: (n_components, n_dims), weights,
// counts, constants: (n_components,) and lengths: (n_total,) are working memory.
// found: as shares, but (n_rows, n_components) of each cell: a member's share, or -1.
// densities: (n_total,) log densities of the standardised rows. is_kept: (n_components,).
// scales, expected: (n_cells,) the factor of the rows, and the expected rows of the components that are kept.
extern "C" __global__ void fit_cells(
    const long long* first, const long long* components, const long long* pairs, float* rows, const int* labels,
    const unsigned char* is_home, int n_dims, float threshold, float* columns, float* shares, float* means, double* sums,
    double* weights, double* counts, float* constants, float* lengths, float* found, float* densities,
    unsigned char* is_kept, double* scales, double* expected
) {
    const int thread = threadIdx.x, n_threads = blockDim.x;
    const long long begin = first[blockIdx.x], component = components[blockIdx.x];
    Cell cell;
    cell.n_rows = (int)(first[blockIdx.x + 1] - begin);
    cell.n_components = (int)(components[blockIdx.x + 1] - component);
    cell.n_dims = n_dims;
    cell.rows = rows + begin * n_dims;
    cell.columns = columns + begin * n_dims;
    cell.lengths = lengths + begin;
    cell.means = means + component * n_dims;
    cell.sums = sums + component * n_dims;
    cell.weights = weights + component;
    cell.counts = counts + component;
    cell.constants = constants + component;
    shares += pairs[blockIdx.x]; found += pairs[blockIdx.x];
    labels += begin; is_home += begin; densities += begin; is_kept += component;
    const int n_rows = cell.n_rows, n_components = cell.n_components;

    for (int axis = thread; axis < n_dims; axis += n_threads) {
        double sum = 0.0;
        for (int row = 0; row < n_rows; row++) sum += cell.rows[(long long)row * n_dims + axis];
        float mean = (float)(sum / n_rows);
        for (int row = 0; row < n_rows; row++) cell.rows[(long long)row * n_dims + axis] -= mean;
    }
    __syncthreads();
    double squares = 0.0;
    for (long long at = thread; at < (long long)n_rows * n_dims; at += n_threads)
        squares += (double)cell.rows[at] * cell.rows[at];
    double scale = sqrt(block_sum(squares) / ((double)n_rows * n_dims));
    if (!(scale > 0.0)) scale = 1.0;
    squares = 0.0;
    for (int row = thread; row < n_rows; row += n_threads) {
        float length = 0.0f;
        for (int axis = 0; axis < n_dims; axis++) {
            long long at = (long long)row * n_dims + axis;
            float value = cell.rows[at] / (float)scale;
            cell.rows[at] = cell.columns[(long long)axis * n_rows + row] = value;
            length += value * value;
        }
        cell.lengths[row] = length;
        squares += length;
    }
    squares = block_sum(squares);

    for (long long at = thread; at < (long long)n_rows * n_components; at += n_threads)
        shares[at] = labels[at % n_rows] == at / n_rows ? 1.0f : 0.0f;
    __syncthreads();
    maximise(cell, shares, squares, max(n_rows - n_components, 1));
    double before = -FAR;
    for (int iteration = 0; iteration < MAX_ITERATIONS; iteration++) {
        prepare(cell);
        double likelihood = block_sum(expect(cell, shares, 1, n_rows, nullptr, 0.0f));
        maximise(cell, shares, squares, n_rows);
        if (likelihood - before < TOLERANCE * n_rows) break;
        before = likelihood;
    }

    prepare(cell);
    expect(cell, found, n_components, 1, densities, threshold);
    __syncthreads();
    double n_kept = 0.0;
    for (int one = thread; one < n_components; one += n_threads) {
        double inside = 0.0, sum = 0.0;
        for (int row = 0; row < n_rows; row++) {
            float share = found[(long long)row * n_components + one];
            if (share < 0.0f) continue;
            sum += share;
            if (is_home[row]) inside += share;
        }
        is_kept[one] = inside * 2 >= sum;
        n_kept += is_kept[one];
    }
    n_kept = block_sum(n_kept);
    double kept_share = 0.0;
    for (int one = thread; one < n_components; one += n_threads) {
        if (n_kept == 0.0) is_kept[one] = 1;
        if (is_kept[one]) kept_share += cell.weights[one];
    }
    kept_share = n_kept == 0.0 || n_kept == n_components ? 1.0 : block_sum(kept_share);
    if (n_kept > 0.0 && n_kept < n_components) {
        for (int one = thread; one < n_components; one += n_threads)
            cell.weights[one] = is_kept[one] ? cell.weights[one] / kept_share : 0.0;
        __syncthreads();
        prepare(cell);
        expect(cell, found, n_components, 1, densities, threshold);
    }
    if (thread == 0) {
        scales[blockIdx.x] = scale;
        expected[blockIdx.x] = n_rows * kept_share;
    }
}

// Greedy k-means++, as in core.clustering.kmeans.start_means: five kernels for each mean, the threads of the first three
// spread over the rows, since what is drawn next depends on all rows.

// Set the weight of each row among the draws, in whole units that add up in any order. top: (1,) the largest `near`.
extern "C" __global__ void weigh_rows(const float* near, const float* top, int n_rows, long long* units) {
    for (int row = blockIdx.x * blockDim.x + threadIdx.x; row < n_rows; row += gridDim.x * blockDim.x)
        units[row] = (long long)(near[row] / fmax((double)*top, SMALLEST) * DRAW_UNITS);
}

// Set the rows that are drawn. heights: (n_rows,) sums of the units up to each row. draws: (n_drawn,) in [0, 1).
extern "C" __global__ void draw_rows(const long long* heights, int n_rows, const double* draws, int n_drawn, int* drawn) {
    for (int one = threadIdx.x; one < n_drawn; one += blockDim.x) {
        long long target = (long long)(draws[one] * heights[n_rows - 1]);
        int low = 0, high = n_rows;
        while (low < high) {
            int middle = (low + high) / 2;
            if (heights[middle] > target) high = middle;
            else low = middle + 1;
        }
        drawn[one] = min(low, n_rows - 1);  // all units 0: copies remain
    }
}

// Set (n_drawn, n_rows) squared distances to the nearest of a drawn row and those before. columns: (n_dims, n_rows).
extern "C" __global__ void approach_rows(
    const float* columns, const float* norms, const float* near, const int* drawn, int n_drawn, int n_rows, int n_dims,
    float* distances
) {
    for (int row = blockIdx.x * blockDim.x + threadIdx.x; row < n_rows; row += gridDim.x * blockDim.x) {
        for (int one = 0; one < n_drawn; one++) {
            int other = drawn[one];
            float product = 0.0f;
            for (int axis = 0; axis < n_dims; axis++) {
                const float* column = columns + (long long)axis * n_rows;
                product = fmaf(column[other], column[row], product);
            }
            float distance = product * -2.0f + norms[row] + norms[other];
            distances[(long long)one * n_rows + row] = row == other ? 0.0f : fminf(fmaxf(distance, 0.0f), near[row]);
        }
    }
}

// Set the sum of the distances of each drawn row.
extern "C" __global__ void sum_distances(const float* distances, int n_rows, double* sums) {
    distances += (long long)blockIdx.x * n_rows;
    double sum = 0.0;
    for (int row = threadIdx.x; row < n_rows; row += blockDim.x) sum += distances[row];
    sum = block_sum(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// Choose the drawn row of the lowest sum: set it, `near` and `top`.
extern "C" __global__ void choose_row(
    const float* distances, const double* sums, const int* drawn, int n_drawn, int n_rows, float* near, float* top,
    int* chosen
) {
    __shared__ float tops[MAX_THREADS];
    int best = 0;
    for (int one = 1; one < n_drawn; one++)
        if (sums[one] < sums[best]) best = one;
    float largest = 0.0f;
    for (int row = threadIdx.x; row < n_rows; row += blockDim.x) {
        near[row] = distances[(long long)best * n_rows + row];
        largest = fmaxf(largest, near[row]);
    }
    tops[threadIdx.x] = largest;
    __syncthreads();
    for (int half = blockDim.x / 2; half; half /= 2) {
        if (threadIdx.x < half) tops[threadIdx.x] = fmaxf(tops[threadIdx.x], tops[threadIdx.x + half]);
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        *top = tops[0];
        *chosen = drawn[best];
    }
}

// Set the place of the largest of each row's (n_rows, n_columns) values less the halves, the first of equal ones.
extern "C" __global__ void nearest_columns(
    const float* closeness, const float* halves, int n_columns, long long* labels
) {
    __shared__ float largest_of[MAX_THREADS];
    __shared__ int place_of[MAX_THREADS];
    const int thread = threadIdx.x;
    closeness += (long long)blockIdx.x * n_columns;
    float largest = LOWEST;
    int place = 0;
    for (int column = thread; column < n_columns; column += blockDim.x) {
        float value = closeness[column] - halves[column];
        if (value > largest) {
            largest = value;
            place = column;
        }
    }
    largest_of[thread] = largest;
    place_of[thread] = place;
    __syncthreads();
    for (int half = blockDim.x / 2; half; half /= 2) {
        if (thread < half) {
            float there = largest_of[thread + half];
            if (there > largest_of[thread] || (there == largest_of[thread] && place_of[thread + half] < place_of[thread])) {
                largest_of[thread] = there;
                place_of[thread] = place_of[thread + half];
            }
        }
        __syncthreads();
    }
    if (thread == 0) labels[blockIdx.x] = place_of[0];
}

// Set the sums of the (n, n_dims) rows of each group, in their order. order: rows by group; first: (n_groups + 1,).
extern "C" __global__ void sum_groups(
    const float* rows, const long long* order, const long long* first, int n_dims, double* sums
) {
    for (int axis = threadIdx.x; axis < n_dims; axis += blockDim.x) {
        double sum = 0.0;
        for (long long at = first[blockIdx.x]; at < first[blockIdx.x + 1]; at++) sum += rows[order[at] * n_dims + axis];
        sums[(long long)blockIdx.x * n_dims + axis] = sum;
    }
}
