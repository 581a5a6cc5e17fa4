/* Programs include this beside llama.h; ggml.h has what is offered. */
#ifndef GGML_BACKEND_H
#define GGML_BACKEND_H

#include "ggml.h"

#endif
